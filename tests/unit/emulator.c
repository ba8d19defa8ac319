/*
 * Tests that qemu-user cannot run
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "emulator.h"

bool emulator_lacks(const char *lacks)
{
    g_autofree char *why = g_strdup_printf("qemu-user lacks %s", lacks);

    /* meson.build sets the variable */
    if (!g_getenv("RAM_RESET_QEMU_USER")) {
        return false;
    }
    g_test_skip(why);
    return true;
}
