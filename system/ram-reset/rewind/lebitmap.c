/*
 * Bitmaps as KVM has them: little-endian, whatever the host is
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bitmap.h"
#include "system/ram-reset/rewind/lebitmap.h"

static void clear_word(unsigned long *le, uint64_t at, unsigned long bits)
{
    unsigned long *word = le + at / BITS_PER_LONG;
    unsigned shift = at % BITS_PER_LONG;

    word[0] &= ~GULONG_TO_LE(bits << shift);
    if (shift && bits >> (BITS_PER_LONG - shift)) {
        word[1] &= ~GULONG_TO_LE(bits >> (BITS_PER_LONG - shift));
    }
}

void lebitmap_clear(unsigned long *le, uint64_t at, const unsigned long *bits,
                    uint64_t from, uint64_t nr)
{
    uint64_t done, n;

    for (done = 0; done < nr; done += n) {
        unsigned shift = (from + done) % BITS_PER_LONG;
        unsigned long word = bits[(from + done) / BITS_PER_LONG] >> shift;

        n = MIN(BITS_PER_LONG - shift, nr - done);
        if (n < BITS_PER_LONG) {
            word &= (1UL << n) - 1;
        }
        if (word) {
            clear_word(le, at + done, word);
        }
    }
}
