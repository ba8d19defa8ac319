/*
 * HMP command "info ram-reset": the part about rewinds
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_HMP_REWIND_H
#define MIGRATION_RAM_RESET_HMP_REWIND_H

#include "monitor/monitor.h"
#include "qapi/qapi-types-ram-reset.h"

/* Begin a line with @label and spaces */
void ram_reset_print_label(Monitor *mon, const char *label);

/* Two lines: a blocker with its @text, and its remedy */
void ram_reset_print_blocker(Monitor *mon, const char *text,
                             const RamResetBlocker *b);

/* The way of the next load, and all known snapshots */
void ram_reset_print_next_load(Monitor *mon, RamResetRewindInfo *r);

#endif
