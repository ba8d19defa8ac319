/*
 * Costs on some hosts, for tests
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_TEST_HOST_COSTS_H
#define RAM_RESET_TEST_HOST_COSTS_H

#include "system/ram-reset/measure/costs.h"

/* The costs in tests/unit/costs/@host.costs */
HostCosts host_costs_load(const char *host);

#endif
