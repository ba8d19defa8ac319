/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Timer test guest, the way in: multiboot's 32-bit entry, flat and without
 * paging, in ring 0 for good; and its interrupts.  See timers.c.
 */

#include "multiboot.h"

#define SEL_CODE                0x08
#define SEL_DATA                0x10

        .text
        .code32
start:
        cli
        cld
        lgdt    gdt_pointer
        ljmp    $SEL_CODE, $1f
1:      movl    $SEL_DATA, %eax
        movl    %eax, %ds
        movl    %eax, %es
        movl    %eax, %ss
        movl    $stack_top, %esp

        movl    $idt, %edi
        movl    $256, %ecx
2:      movl    $interrupt, %eax
        movw    %ax, (%edi)
        movw    $SEL_CODE, 2(%edi)
        movw    $0x8e00, 4(%edi)
        shrl    $16, %eax
        movw    %ax, 6(%edi)
        addl    $8, %edi
        loop    2b
        lidt    idt_pointer
        call    guest_main

interrupt:
        pushal
        call    guest_interrupt
        popal
        /* like iretl, which not every KVM can emulate, but for the flags */
        lretl   $4

        .data
        .balign 16
gdt:    .quad   0
        .quad   0x00cf9b000000ffff
        .quad   0x00cf93000000ffff
gdt_pointer:
        .word   gdt_pointer - gdt - 1
        .long   gdt
idt_pointer:
        .word   256 * 8 - 1
        .long   idt

        .bss
        .balign 16
idt:    .skip   256 * 8
        .skip   4096
stack_top:

        .section .note.GNU-stack, "", @progbits
