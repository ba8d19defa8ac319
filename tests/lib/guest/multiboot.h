/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * For assembly: the header that the image of a test guest begins with.  Its
 * addresses are of ring3.ld, and "start" is where the 32-bit code begins.
 */

#define MULTIBOOT_MAGIC         0x1badb002
#define MULTIBOOT_ADDRESSES     0x00010000

        .section .header, "a"
        .balign 4
header:
        .long   MULTIBOOT_MAGIC, MULTIBOOT_ADDRESSES
        .long   -(MULTIBOOT_MAGIC + MULTIBOOT_ADDRESSES)
        .long   header, image_start, image_end, bss_end, start
