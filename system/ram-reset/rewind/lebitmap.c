/*
 * Bitmaps as KVM has them: little-endian, whatever the host is
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset/rewind/lebitmap.h"

#define WORD_BITS (sizeof(unsigned long) * 8)

static void clear_word(unsigned long *le, uint64_t at, unsigned long bits)
{
    unsigned long *word = le + at / WORD_BITS;
    unsigned shift = at % WORD_BITS;

    word[0] &= ~GULONG_TO_LE(bits << shift);
    if (shift && bits >> (WORD_BITS - shift)) {
        word[1] &= ~GULONG_TO_LE(bits >> (WORD_BITS - shift));
    }
}

void lebitmap_clear(unsigned long *le, uint64_t at, const unsigned long *bits,
                    uint64_t from, uint64_t nr)
{
    uint64_t done, n;

    for (done = 0; done < nr; done += n) {
        unsigned shift = (from + done) % WORD_BITS;
        unsigned long word = bits[(from + done) / WORD_BITS] >> shift;

        n = MIN(WORD_BITS - shift, nr - done);
        if (n < WORD_BITS) {
            word &= (1UL << n) - 1;
        }
        if (word) {
            clear_word(le, at + done, word);
        }
    }
}
