/* SPDX-License-Identifier: GPL-2.0-or-later */

#include <endian.h>

#include "mmio.h"

/*
 * On x86 this must be a plain mov.  A compiler may choose an instruction with
 * an operand in memory for a volatile access.  The hypervisor has to emulate
 * it, and not every hypervisor can.
 */
uint32_t snapctl_mmio_read(const void *regs, unsigned offset)
{
    const void *at = (const char *)regs + offset;
    uint32_t value;

#if defined(__x86_64__) || defined(__i386__)
    __asm__ volatile("movl %1, %0"
                     : "=r"(value) : "m"(*(const uint32_t *)at) : "memory");
#else
    /* volatile: a register may have another value at each read */
    value = *(const volatile uint32_t *)at;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
    return le32toh(value);
}

void snapctl_mmio_write(void *regs, unsigned offset, uint32_t value)
{
    void *at = (char *)regs + offset;

    value = htole32(value);
#if defined(__x86_64__) || defined(__i386__)
    __asm__ volatile("movl %1, %0"
                     : "=m"(*(uint32_t *)at) : "r"(value) : "memory");
#else
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    /* volatile: each assignment is one write */
    *(volatile uint32_t *)at = value;
#endif
}
