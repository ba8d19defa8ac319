/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Ring-3 test guest, the way in: multiboot's 32-bit entry, long mode, then
 * ring 3, which it leaves only for what do_call() does.
 *
 * The image is a flat binary that starts with a multiboot header giving its
 * addresses, because QEMU's multiboot loader takes no 64-bit ELF file.
 */

#include "multiboot.h"
#include "ring3-cpus.h"

#define CR0_LONG_MODE           0x80000011      /* PG, ET, PE */
#define CR4_PAE                 0x20
#define MSR_EFER                0xc0000080
#define EFER_LME                0x100

#define SEL_CODE0               0x08
#define SEL_DATA0               0x10
#define SEL_CODE3               (0x18 | 3)
#define SEL_DATA3               (0x20 | 3)
#define SEL_TSS                 0x28
#define SEL_CODE32              (SEL_TSS + 16 * MAX_CPUS)

/* present, writable, user, accessed; a leaf is large and dirty as well */
#define PTE_TABLE               0x027
#define PTE_LEAF                0x0e7
#define PTE_UNCACHED            0x018

/* where ring3-snapctl.c puts registers if the firmware has put them nowhere */
#define DEVICE_PAGE             0xf0000000

#define VECTORS                 32
#define IO_BITMAP               104     /* right after the TSS itself */
#define IO_BITMAP_BYTES         8192    /* all ports, all allowed */

        .text
        .code32
start:
        cli
        cld
        lgdt    gdt_pointer
        xorl    %ebx, %ebx
start_cpu:                              /* %ebx: its number */
        movl    $pml4, %eax
        movl    %eax, %cr3
        movl    $CR4_PAE, %eax
        movl    %eax, %cr4
        movl    $MSR_EFER, %ecx
        rdmsr
        orl     $EFER_LME, %eax
        wrmsr
        movl    $CR0_LONG_MODE, %eax
        movl    %eax, %cr0
        ljmp    $SEL_CODE0, $start64

        .code64
start64:
        movl    $SEL_DATA0, %eax
        movl    %eax, %ds
        movl    %eax, %es
        movl    %eax, %ss
        xorl    %eax, %eax
        movl    %eax, %fs
        movl    %eax, %gs
        imull   $CPU_STACK, %ebx, %esp
        addl    $stack_top, %esp
        testl   %ebx, %ebx
        jnz     enter_ring3

        /* gates that all lie below 64 KiB * 65536: only two fields differ */
        movl    $vectors, %eax
        movl    $idt, %edi
        movl    $VECTORS, %ecx
1:      movw    %ax, (%rdi)
        movw    $SEL_CODE0, 2(%rdi)
        movw    $0x8e00, 4(%rdi)
        movl    %eax, %edx
        shrl    $16, %edx
        movw    %dx, 6(%rdi)
        addl    $16, %eax
        addl    $16, %edi
        decl    %ecx
        jnz     1b

enter_ring3:
        lidt    idt_pointer
        leal    (, %ebx, 8), %edx
        addl    %edx, %edx
        movl    $tss, %eax
        movw    %ax, gdt_tss + 2(%rdx)
        shrl    $16, %eax
        movb    %al, gdt_tss + 4(%rdx)
        movb    %ah, gdt_tss + 7(%rdx)
        movb    $0x89, gdt_tss + 5(%rdx)
        leal    SEL_TSS(%rdx), %eax
        ltr     %ax

        movl    %esp, %eax
        pushq   $SEL_DATA3
        pushq   %rax
        pushq   $0x2                    /* rflags: interrupts stay off */
        pushq   $SEL_CODE3
        pushq   $ring3
        iretq
ring3:
        movl    $SEL_DATA3, %eax
        movl    %eax, %ds
        movl    %eax, %es
        movl    %ebx, %edi
        testl   %ebx, %ebx
        jnz     1f
        call    guest_main
        ud2
1:      call    other_cpu
        ud2

        /* one 16-byte stub for each vector; some push an error code already */
        .balign 16
vectors:
        .set    vector, 0
        .rept   VECTORS
        .balign 16
        .if     !((0x27d00 >> vector) & 1)
        pushq   $0
        .endif
        pushq   $vector
        jmp     trap
        .set    vector, vector + 1
        .endr
trap:
        cmpq    $ring0_enter, 16(%rsp)
        je      ring0_call
        cmpq    $0, ring0_frame
        jne     ring0_fault
        popq    %rdi
        popq    %rsi
        movq    (%rsp), %rdx
        movq    %cr2, %rcx
        andq    $-16, %rsp
        call    guest_trap
1:      hlt
        jmp     1b

        /* see do_call(); of one CPU at a time.  KVM may not emulate "int" */
        .globl  ring0_enter
ring0_enter:
        ud2
        ret
ring0_call:
        addq    $16, %rsp
        addq    $2, (%rsp)
        movq    %rsp, ring0_frame
        call    *%rax
        xorl    %edx, %edx
1:      movq    $0, ring0_frame
        iretq
ring0_fault:
        movq    ring0_frame, %rsp
        movl    $1, %edx
        jmp     1b

        /* what a CPU begins with that START_PLACE is given to */
        .globl  trampoline, trampoline_end
        .code16
trampoline:
        cli
        cld
        xorw    %ax, %ax
        movw    %ax, %ds
        lgdtl   START_PLACE + trampoline_gdt - trampoline
        movl    %cr0, %eax
        orl     $1, %eax
        movl    %eax, %cr0
        ljmpl   $SEL_CODE32, $1f
        .balign 4
trampoline_gdt:
        .word   gdt_pointer - gdt - 1
        .long   gdt
trampoline_end:
        .code32
1:      movl    $SEL_DATA0, %eax
        movl    %eax, %ds
        movl    %eax, %es
        movl    %eax, %ss
        movl    starting, %ebx
        jmp     start_cpu

        .data
        .balign 16
gdt:    .quad   0
        .quad   0x00af9b000000ffff
        .quad   0x00cf93000000ffff
        .quad   0x00affb000000ffff
        .quad   0x00cff3000000ffff
        /* each CPU has a descriptor of its own, of the same TSS */
gdt_tss:
        .rept   MAX_CPUS
        .quad   IO_BITMAP + IO_BITMAP_BYTES, 0
        .endr
        .quad   0x00cf9b000000ffff
gdt_pointer:
        .word   gdt_pointer - gdt - 1
        .quad   gdt
idt_pointer:
        .word   VECTORS * 16 - 1
        .quad   idt
        .balign 8
ring0_frame:
        .quad   0

        .balign 16
tss:    .long   0
        .quad   trap_stack_top          /* rsp0 */
        .fill   90, 1, 0
        .word   IO_BITMAP
        .fill   IO_BITMAP_BYTES, 1, 0
        .byte   0xff
        .balign 16
idt:    .fill   VECTORS * 2, 8, 0

        /* 8 GiB, mapped one to one by 2 MiB pages, one of them uncached */
        .balign 4096
pml4:   .quad   pdpt + PTE_TABLE
        .fill   511, 8, 0
pdpt:   .set    i, 0
        .rept   8
        .quad   pd + i * 4096 + PTE_TABLE
        .set    i, i + 1
        .endr
        .fill   504, 8, 0
pd:     .set    i, 0
        .rept   8 * 512
        .if     i * 0x200000 == DEVICE_PAGE
        .quad   DEVICE_PAGE + PTE_LEAF + PTE_UNCACHED
        .else
        .quad   i * 0x200000 + PTE_LEAF
        .endif
        .set    i, i + 1
        .endr

        .bss
        .balign 16
        .skip   CPU_STACK
stack_top:
        .skip   CPU_STACK * (MAX_CPUS - 1)
        .skip   4096
trap_stack_top:

        .section .note.GNU-stack, "", @progbits
