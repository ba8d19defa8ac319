/*
 * snapctl: the guest saves and loads snapshots
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "snapctl/snapctl.h"

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    if (!have_qemu_img()) {
        g_test_message("QTEST_QEMU_IMG is not set, or is no qemu-img");
        return g_test_run();
    }
    add_snapctl_register_tests();
    add_snapctl_save_and_load_tests();
    add_snapctl_migration_tests();
    return g_test_run();
}
