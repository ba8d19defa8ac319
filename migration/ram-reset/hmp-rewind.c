/*
 * HMP commands: "info ram-reset", the part about rewinds, and "ram_reset_pin"
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "exec/target_page.h"
#include "qapi/error.h"
#include "qapi/qapi-commands-ram-reset.h"
#include "qemu/module.h"
#include "qobject/qdict.h"
#include "monitor/hmp.h"
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
        monitor_printf(mon, "%s%s\n", s->kind == RAM_RESET_SAVE_KIND_MEMORY
                                      ? "  memory" : "",
                       s->has_pinned && s->pinned == RAM_RESET_PIN_USER
                       ? "  pinned" : "");
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
    for (strList *l = r->lost_pins; l; l = l->next) {
        ram_reset_print_label(mon, "Lost pin");
        monitor_printf(mon, "%s\n", l->value);
    }
}

static void hmp_ram_reset_pin(Monitor *mon, const QDict *qdict)
{
    Error *err = NULL;

    qmp_ram_reset_pin(qdict_get_str(qdict, "tag"),
                      qdict_get_bool(qdict, "pinned"), &err);
    hmp_handle_error(mon, err);
}

static void ram_reset_hmp_rewind_init(void)
{
    monitor_register_hmp("ram_reset_pin", false, hmp_ram_reset_pin);
}

type_init(ram_reset_hmp_rewind_init)
