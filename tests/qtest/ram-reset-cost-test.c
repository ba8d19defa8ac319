/*
 * RAM reset: what loads cost in system calls and bytes, and leave behind; with
 * hugepages these tests are those of ram-reset-host-test
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

/* Takes: 15 s */

#include "qemu/osdep.h"
#include "ram-reset/framework.h"

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    if (!have_qemu_img()) {
        g_test_message("QTEST_QEMU_IMG is not set, or is no qemu-img");
        return g_test_run();
    }
    add_leak_tests(false);
    add_count_tests(false);
    return g_test_run();
}
