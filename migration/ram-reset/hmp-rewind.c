/*
 * HMP command "info ram-reset": the part about rewinds
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "exec/target_page.h"
#include "monitor/monitor.h"
#include "migration/ram-reset/hmp-rewind.h"

void ram_reset_print_label(Monitor *mon, const char *label)
{
    monitor_printf(mon, "%-15s ", label);
}

void ram_reset_print_blocker(Monitor *mon, const char *text,
                          const RamResetBlocker *b)
{
    ram_reset_print_label(mon, "  reason");
    monitor_printf(mon, "%s [%s]\n", text, RamResetBlockerId_str(b->id));
    ram_reset_print_label(mon, "  remedy");
    monitor_printf(mon, "%s\n", b->remedy);
}

/* Most columns are in KiB, as "info snapshots" has sizes, not pages */
static void print_known(Monitor *mon, RamResetRewindInfo *r)
{
    uint64_t page = qemu_target_page_size() / 1024;

    ram_reset_print_label(mon, "Known");
    monitor_printf(mon, "baseline %" PRIu64 " KiB, unread %" PRIu64
                   " KiB, other pages %" PRIu64 " KiB, tables %" PRIu64
                   " KiB\n", r->baseline / 1024, r->unread / 1024,
                   r->pages / 1024, r->tables / 1024);
    monitor_printf(mon, "  %-28s %10s %10s %15s\n", "snapshot, in KiB", "own",
                   "shared", "differs by");
    for (RamResetKnownSnapshotList *l = r->snapshots; l; l = l->next) {
        RamResetKnownSnapshot *s = l->value;

        monitor_printf(mon, "  %-28s %10" PRIu64 " %10" PRIu64 " ", s->tag,
                       s->own_pages * page, s->shared_pages * page);
        if (s->current) {
            monitor_printf(mon, "%15s", "current");
        } else {
            monitor_printf(mon, "%15" PRIu64, s->differing_pages * page);
        }
        monitor_printf(mon, "%s\n", s->kind == RAM_RESET_SAVE_KIND_MEMORY
                                    ? "  memory" : "");
    }
}

void ram_reset_print_next_load(Monitor *mon, RamResetRewindInfo *r)
{
    ram_reset_print_label(mon, "Next load");
    if (r->blocker) {
        monitor_printf(mon, "no rewind\n");
        ram_reset_print_blocker(mon, r->blocker, r->blocker_info);
    } else {
        monitor_printf(mon, "a rewind if it is a known snapshot\n");
    }
    if (r->snapshots) {
        print_known(mon, r);
    }
}
