/*
 * Bitmaps as KVM has them: little-endian, whatever the host is
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_REWIND_LEBITMAP_H
#define RAM_RESET_REWIND_LEBITMAP_H

/*
 * Clear those of the bits [@at, @at + @nr) of @le that are set in [@from,
 * @from + @nr) of @bits, a bitmap of the host
 */
void lebitmap_clear(unsigned long *le, uint64_t at, const unsigned long *bits,
                    uint64_t from, uint64_t nr);

#endif
