/*
 * QEMU's trace points, which parsers that are fuzzed have no use for
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#define trace_ram_reset_device_differs(...) ((void)0)
