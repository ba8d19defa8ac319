/*
 * The choice between tracking writes and comparing all pages
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset/rewind/policy.h"

#define MS 1e6

/* Returns the number of loads until the choice is @compare */
static unsigned loads_until(RewindChoice *c, bool compare, double faults,
                            double comparing)
{
    unsigned n = 0;

    for (; c->compare != compare; n++) {
        g_assert_cmpuint(n, <, 1000);
        rewind_choose(c, faults, comparing);
    }
    return n;
}

static void assert_stays(RewindChoice *c, double faults, double comparing)
{
    bool compare = c->compare;

    for (unsigned i = 0; i < 1000; i++) {
        rewind_choose(c, faults, comparing);
        g_assert_cmpint(c->compare, ==, compare);
    }
}

/* A few hundred pages do not change the choice */
static void test_few(void)
{
    RewindChoice c = { 0 };

    g_assert_false(rewind_choice_open(1 * MS));
    g_assert_true(rewind_choice_open(100 * MS));
    assert_stays(&c, 1 * MS, 0.001 * MS);
}

/*
 * Pages that are written to load after load become untracked before a decision
 */
static void test_learns_first(void)
{
    RewindChoice c = { 0 };

    for (unsigned i = 0; i < 100; i++) {
        rewind_choose(&c, 500 * MS, 50 * MS);
        rewind_choose(&c, 500 * MS, 50 * MS);
        rewind_choose(&c, 0, 50 * MS);
        g_assert_false(c.compare);
    }
}

static void test_many(void)
{
    RewindChoice c = { 0 };

    g_assert_cmpuint(loads_until(&c, true, 500 * MS, 50 * MS), >, 2);
    assert_stays(&c, 500 * MS, 50 * MS);
}

static void test_close(void)
{
    RewindChoice c = { 0 };

    assert_stays(&c, 55 * MS, 50 * MS);
    loads_until(&c, true, 500 * MS, 50 * MS);
    assert_stays(&c, 55 * MS, 50 * MS);
}

/* One quiet load changes nothing; many do, when their savings have added up */
static void test_comes_back(void)
{
    RewindChoice c = { 0 };

    loads_until(&c, true, 500 * MS, 50 * MS);
    for (unsigned i = 0; i < 100; i++) {
        rewind_choose(&c, 0, 50 * MS);
        rewind_choose(&c, 500 * MS, 50 * MS);
        g_assert_true(c.compare);
    }
    g_assert_cmpuint(loads_until(&c, false, 0, 50 * MS), ==, 11);
    g_assert_cmpuint(loads_until(&c, true, 500 * MS, 50 * MS), >, 2);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/ram-reset/choice/few", test_few);
    g_test_add_func("/ram-reset/choice/learns-first", test_learns_first);
    g_test_add_func("/ram-reset/choice/many", test_many);
    g_test_add_func("/ram-reset/choice/close", test_close);
    g_test_add_func("/ram-reset/choice/comes-back", test_comes_back);
    return g_test_run();
}
