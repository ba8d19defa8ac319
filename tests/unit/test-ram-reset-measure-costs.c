/*
 * Unit tests for system/ram-reset/measure/costs.c
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <glib/gstdio.h>
#include "files.h"
#include "host-costs.h"

static char *write_file(const char *text)
{
    char *name = NULL;
    int fd = g_file_open_tmp("ram-reset-XXXXXX", &name, NULL);

    g_assert_cmpint(fd, >=, 0);
    g_close(fd, NULL);
    g_assert_true(g_file_set_contents(name, text, -1, NULL));
    return name;
}

static void test_file(void)
{
    HostCosts costs = host_costs_load("nested-kvm");
    HostCosts thp = host_costs_load("thp");

    for (CostsKind kind = 0; kind < COSTS_NR_KINDS; kind++) {
        g_assert_true(costs.known[kind]);
        g_assert_cmpint(thp.known[kind], ==, kind == COSTS_ANONYMOUS);
    }
    g_assert_cmpuint(costs.kinds[COSTS_SHARED].granule, ==, 1);
    g_assert_cmpuint(costs.kinds[COSTS_HUGETLB].granule, ==, 512);
    g_assert_cmpfloat(costs.kinds[COSTS_SHARED].test, ==, 113);
    g_assert_cmpfloat(costs.kinds[COSTS_SHARED].guest_map, ==, 1200);
}

#define KEYS "test=1\nclear=1\ndiscard-call=1\ndiscard=1\n" \
             "remap-call=1\nremap=1\nfault=1\nguest-fault=1\n"

static void test_errors(void)
{
    static const char *const cases[][2] = {
        { "", "its groups are not" },
        { "nonsense", "" },
        { "[anon]\n" KEYS, "its groups are not" },
        { "[anonymous]\n" KEYS "guest-map=1", "granule" },
        { "[anonymous]\ngranule=4096\n" KEYS, "guest-map" },
        { "[anonymous]\ngranule=4097\n" KEYS "guest-map=1", "granule=4097" },
        { "[anonymous]\ngranule=0\n" KEYS "guest-map=1", "granule=0" },
        { "[anonymous]\ngranule=4096\n" KEYS "guest-map=-1", "guest-map=-1" },
        { "[anonymous]\ngranule=4096\n" KEYS "guest-map=nan", "guest-map" },
        { "[anonymous]\ngranule=4096\n" KEYS "guest-map=x",
          "cannot be interpreted" },
        { "[anonymous]\ngranule=4096\n" KEYS "guest-map=1\nextra=1",
          "unknown keys" },
        { "[anonymous]\ngranule=4096\n" KEYS "guest-map=1\n[other]\na=1",
          "its groups are not" },
    };
    HostCosts costs;
    Error *err = NULL;

    for (unsigned i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *name = write_file(cases[i][0]);

        g_assert_false(costs_read(name, &costs, &err));
        assert_error(&err, cases[i][1]);
        g_unlink(name);
    }
    g_assert_false(costs_read("/nonexistent/file", &costs, NULL));
}

static void test_for_granule(void)
{
    HostCosts costs = host_costs_load("nested-kvm");
    MemoryCosts huge = costs_for_granule(&costs.kinds[COSTS_HUGETLB], 262144);

    g_assert_cmpuint(huge.granule, ==, 262144);
    g_assert_cmpfloat(huge.fault, ==, 512 * costs.kinds[COSTS_HUGETLB].fault);
    g_assert_cmpfloat(huge.discard, ==,
                      costs.kinds[COSTS_HUGETLB].discard / 512);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/costs/file", test_file);
    g_test_add_func("/costs/errors", test_errors);
    g_test_add_func("/costs/for-granule", test_for_granule);
    return g_test_run();
}
