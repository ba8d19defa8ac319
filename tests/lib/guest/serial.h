/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The first serial port, for bare-metal test guests. */

#ifndef GUEST_SERIAL_H
#define GUEST_SERIAL_H

#include <stdbool.h>
#include <stdint.h>

#define COM1            0x3f8
#define COM1_IER        (COM1 + 1)
#define COM1_FCR        (COM1 + 2)
#define COM1_LCR        (COM1 + 3)
#define COM1_LSR        (COM1 + 5)
#define LSR_DATA_READY  0x01
#define LSR_THR_EMPTY   0x20

static inline void outb(uint16_t port, uint8_t value)
{
    asm volatile("outb %0, %1" : : "a"(value), "Nd"(port));
}

static inline uint8_t inb(uint16_t port)
{
    uint8_t value;

    asm volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
    return value;
}

static inline bool input_waiting(void)
{
    return inb(COM1_LSR) & LSR_DATA_READY;
}

static inline char get_char(void)
{
    while (!input_waiting()) {
        asm volatile("pause");
    }
    return inb(COM1);
}

static inline void put_char(char c)
{
    while (!(inb(COM1_LSR) & LSR_THR_EMPTY)) {
        asm volatile("pause");
    }
    outb(COM1, c);
}

static inline void put_string(const char *s)
{
    while (*s) {
        put_char(*s++);
    }
}

static inline void put_hex(uint64_t value)
{
    int shift = 60;

    while (shift && !(value >> shift)) {
        shift -= 4;
    }
    for (; shift >= 0; shift -= 4) {
        put_char("0123456789abcdef"[(value >> shift) & 15]);
    }
}

#endif
