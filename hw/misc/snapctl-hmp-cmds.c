/*
 * HMP command for the snapctl device
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/qapi-commands-snapctl.h"
#include "qemu/module.h"
#include "monitor/hmp.h"
#include "monitor/monitor.h"

static void print_save_kind(Monitor *mon, const SnapctlInfo *info)
{
    monitor_printf(mon, "  saves go to %s",
                   info->save_kind == RAM_RESET_SAVE_KIND_MEMORY
                   ? "memory" : "the image");
    if (info->save_kind == RAM_RESET_SAVE_KIND_MEMORY || info->memory) {
        monitor_printf(mon, ", %" PRIu64 " KiB in memory", info->memory / 1024);
    }
    if (info->memory_limit) {
        monitor_printf(mon, ", limit %" PRIu64 " KiB",
                       info->memory_limit / 1024);
    }
    monitor_puts(mon, "\n");
}

static void hmp_info_snapctl(Monitor *mon, const QDict *qdict)
{
    Error *err = NULL;
    g_autoptr(SnapctlInfo) info = qmp_query_snapctl(&err);
    strList *tag;
    unsigned slot = 0;

    if (hmp_handle_error(mon, err)) {
        return;
    }
    if (!info->present) {
        monitor_puts(mon, "There is no snapctl device.\n");
        return;
    }
    monitor_printf(mon, "%s: allow %s, at least %" PRIu32 " ms between "
                   "commands, region %" PRIu64 " KiB\n", info->qom_path,
                   SnapctlAllow_str(info->allow), info->min_interval,
                   info->has_region_size ? info->region_size / 1024 : 0);
    print_save_kind(mon, info);
    for (tag = info->slots; tag; tag = tag->next) {
        monitor_printf(mon, "  slot %u: snapshot '%s'\n", slot++, tag->value);
    }
    monitor_printf(mon, "  generation %" PRIu64 "%s; the guest has had %" PRIu64
                   " save(s), %" PRIu64 " load(s), %" PRIu64 " failure(s), "
                   "%" PRIu64 " refusal(s)\n", info->generation,
                   info->pending ? ", a command is pending" : "", info->saves,
                   info->loads, info->failures, info->refused);
    if (info->last) {
        monitor_printf(mon, "  last: %s of slot %" PRIu32 ", '%s', in %.3f ms: "
                       "%s\n", SnapctlAction_str(info->last->command),
                       info->last->slot, info->last->tag,
                       info->last->time_ns / 1e6,
                       info->last->error ?: "done");
    }
}

static void snapctl_hmp_init(void)
{
    monitor_register_hmp("snapctl", true, hmp_info_snapctl);
}

type_init(snapctl_hmp_init)
