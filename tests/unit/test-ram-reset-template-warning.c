/*
 * Unit tests for system/ram-reset/template/warning.c
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset/template/warning.h"

#define S INT64_C(1000000000)

/* Warnings in @seconds, with a problem in each */
static unsigned warned(const char *const texts[2], bool comes_and_goes,
                       unsigned seconds)
{
    RamResetWarning w = { 0 };
    unsigned count = 0;

    for (unsigned i = 0; i < seconds; i++) {
        count += ram_reset_warning_due(&w, texts[i % 2], 1000 * S + i * S);
        if (comes_and_goes) {
            ram_reset_warning_over(&w);
        }
    }
    g_free(w.text);
    return count;
}

static void test_problem_that_lasts(void)
{
    const char *const same[] = { "a", "a" };

    g_assert_cmpuint(warned(same, false, 1000), ==, 1);
}

static void test_problem_that_comes_and_goes(void)
{
    const char *const same[] = { "a", "a" };

    g_assert_cmpuint(warned(same, true, 60), ==, 1);
    g_assert_cmpuint(warned(same, true, 600), ==, 10);
}

static void test_problems_that_take_turns(void)
{
    const char *const two[] = { "a", "b" };

    g_assert_cmpuint(warned(two, false, 60), ==, 1);
    g_assert_cmpuint(warned(two, false, 600), <=, 10);
    g_assert_cmpuint(warned(two, true, 600), ==, 10);
}

static void test_another_problem_is_told(void)
{
    RamResetWarning w = { 0 };

    g_assert_true(ram_reset_warning_due(&w, "a", 0));
    g_assert_false(ram_reset_warning_due(&w, "b", RAM_RESET_WARNING_NS - 1));
    g_assert_false(ram_reset_warning_due(&w, "a", RAM_RESET_WARNING_NS));
    g_assert_true(ram_reset_warning_due(&w, "b", RAM_RESET_WARNING_NS));
    g_free(w.text);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/warning/lasts", test_problem_that_lasts);
    g_test_add_func("/warning/comes-and-goes",
                    test_problem_that_comes_and_goes);
    g_test_add_func("/warning/takes-turns", test_problems_that_take_turns);
    g_test_add_func("/warning/another", test_another_problem_is_told);
    return g_test_run();
}
