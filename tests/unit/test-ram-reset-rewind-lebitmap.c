/*
 * Bitmaps as KVM has them, on this host and on one of the other byte order
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bitmap.h"
#include "system/ram-reset/rewind/lebitmap.h"

#define BITS      512
#define WORDS     (BITS / BITS_PER_LONG)
#define SWAP(x)   ((gulong)GUINT64_SWAP_LE_BE(x))

G_STATIC_ASSERT(sizeof(gulong) == 8);

/*
 * The same on a host of the other byte order: what is little-endian there has
 * its bytes the other way round than here, seen as longs.
 */
#undef GULONG_TO_LE
#if G_BYTE_ORDER == G_LITTLE_ENDIAN
#define GULONG_TO_LE(x) SWAP(x)
#else
#define GULONG_TO_LE(x) (x)
#endif
#define lebitmap_clear lebitmap_clear_elsewhere
#define clear_word     clear_word_elsewhere
#include "system/ram-reset/rewind/lebitmap.c"
#undef lebitmap_clear

/* By bytes, as KVM says it */
static bool test_le(const unsigned long *le, unsigned nr)
{
    return ((const uint8_t *)le)[nr / 8] >> (nr % 8) & 1;
}

static void fill(unsigned long *bits)
{
    for (unsigned i = 0; i < WORDS; i++) {
        bits[i] = (gulong)g_test_rand_int() << 32 | (guint32)g_test_rand_int();
    }
}

static void test_random(void)
{
    for (unsigned round = 0; round < 10000; round++) {
        unsigned long le[WORDS], before[WORDS], bits[WORDS], elsewhere[WORDS];
        unsigned align = round % 2 ? 1 : BITS_PER_LONG;
        unsigned at = g_test_rand_int_range(0, BITS) / align * align;
        unsigned from = g_test_rand_int_range(0, BITS) / align * align;
        unsigned nr = g_test_rand_int_range(0, BITS - MAX(at, from) + 1);

        fill(before);
        fill(bits);
        memcpy(le, before, sizeof(le));
        for (unsigned i = 0; i < WORDS; i++) {
            elsewhere[i] = SWAP(before[i]);
        }
        lebitmap_clear(le, at, bits, from, nr);
        lebitmap_clear_elsewhere(elsewhere, at, bits, from, nr);
        for (unsigned i = 0; i < BITS; i++) {
            bool cleared = i >= at && i < at + nr &&
                           test_bit(from + i - at, bits);

            g_assert(test_le(le, i) == (test_le(before, i) && !cleared));
        }
        for (unsigned i = 0; i < WORDS; i++) {
            g_assert_cmphex(elsewhere[i], ==, SWAP(le[i]));
        }
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/ram-reset/le-bitmap/random", test_random);
    return g_test_run();
}
