/*
 * RAM reset: tests that must run alone on the host, as they count its
 * hugepages, take most of them, or compare times
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

/* Alone: it counts hugepages of the host and compares times */

#include "qemu/osdep.h"
#include "ram-reset/framework.h"

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    if (!have_qemu_img()) {
        g_test_message("QTEST_QEMU_IMG is not set, or is no qemu-img");
        return g_test_run();
    }
    add_hugepage_tests();
    add_leak_tests(true);
    add_count_tests(true);
    add_timing_tests();
    return g_test_run();
}
