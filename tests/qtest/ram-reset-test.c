/*
 * RAM reset: loading snapshots with and without a ram-reset object
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

/* Takes: 70 s */

#include "qemu/osdep.h"
#include "ram-reset/framework.h"

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    if (!have_qemu_img()) {
        g_test_message("QTEST_QEMU_IMG is not set, or is no qemu-img");
        return g_test_run();
    }
    add_roundtrip_tests();
    add_memory_tests();
    add_untouched_tests();
    add_refusal_tests();
    add_fallback_tests();
    add_verify_tests();
    add_attribute_tests();
    add_rewind_tests();
    add_rewind_random_tests();
    add_object_tests();
    add_auto_tests();
    add_machine_tests();
    return g_test_run();
}
