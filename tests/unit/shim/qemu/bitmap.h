/*
 * In place of QEMU's header, for code that builds without QEMU
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef SHIM_QEMU_BITMAP_H
#define SHIM_QEMU_BITMAP_H

#define BITS_PER_LONG (8 * sizeof(unsigned long))
#define BITS_TO_LONGS(nr) (((nr) + BITS_PER_LONG - 1) / BITS_PER_LONG)

static inline unsigned long *bitmap_new(long nr)
{
    return g_new0(unsigned long, BITS_TO_LONGS(nr));
}

static inline unsigned long shim_bit(long nr)
{
    return 1ul << (nr % BITS_PER_LONG);
}

static inline bool test_bit(long nr, const unsigned long *bits)
{
    return bits[nr / BITS_PER_LONG] & shim_bit(nr);
}

static inline void set_bit(long nr, unsigned long *bits)
{
    bits[nr / BITS_PER_LONG] |= shim_bit(nr);
}

static inline void clear_bit(long nr, unsigned long *bits)
{
    bits[nr / BITS_PER_LONG] &= ~shim_bit(nr);
}

static inline void bitmap_set(unsigned long *bits, long start, long nr)
{
    for (long i = start; i < start + nr; i++) {
        set_bit(i, bits);
    }
}

static inline void bitmap_clear(unsigned long *bits, long start, long nr)
{
    for (long i = start; i < start + nr; i++) {
        clear_bit(i, bits);
    }
}

static inline unsigned long find_next_bit(const unsigned long *bits,
                                          unsigned long end, unsigned long at)
{
    while (at < end && !test_bit(at, bits)) {
        at++;
    }
    return MIN(at, end);
}

static inline unsigned long find_next_zero_bit(const unsigned long *bits,
                                               unsigned long end,
                                               unsigned long at)
{
    while (at < end && test_bit(at, bits)) {
        at++;
    }
    return MIN(at, end);
}

#endif
