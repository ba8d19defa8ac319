/*
 * Costs on some hosts, for tests
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "host-costs.h"

HostCosts host_costs_load(const char *host)
{
    g_autofree char *name = g_strdup_printf("%s.costs", host);
    g_autofree char *path = g_test_build_filename(G_TEST_DIST, "costs", name,
                                                  NULL);
    HostCosts costs;

    g_assert_true(costs_read(path, &costs, NULL));
    return costs;
}
