/*
 * HMP commands for RAM reset
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/qapi-commands-ram-reset.h"
#include "qemu/module.h"
#include "monitor/hmp.h"
#include "monitor/monitor.h"

static void print_hugefile(Monitor *mon, RamResetHugefileInfo *h)
{
    monitor_printf(mon, "  file %s, unlink=%s, state %s\n", h->file,
                   RamResetUnlink_str(h->unlink), h->state);
    monitor_printf(mon, "  at start: %s; %" PRIu64 " hugepages reused, %" PRIu64
                   " dirty, %" PRIu64 " KiB cleared in %.3f ms\n", h->record,
                   h->reused_pages, h->dirty_pages, h->cleared_bytes / 1024,
                   h->clear_ns / 1e6);
}

static void print_auto(Monitor *mon, RamResetAutoInfo *a)
{
    RamResetCostsList *c;

    if (!a->costs) {
        monitor_printf(mon, "  objective %s, no costs measured yet\n",
                       RamResetObjective_str(a->objective));
        return;
    }
    monitor_printf(mon, "  objective %s, costs in ns (%s):\n",
                   RamResetObjective_str(a->objective),
                   a->calibration_ns ? "measured" : "given");
    monitor_printf(mon, "  %-10s %8s %8s %8s %12s %8s %10s %8s %10s %8s %8s\n",
                   "memory", "granule", "test", "clear", "discard call",
                   "discard", "remap call", "remap", "fault", "guest", "map");
    for (c = a->costs; c; c = c->next) {
        RamResetCosts *v = c->value;

        monitor_printf(mon, "  %-10s %4" PRIu64 " KiB %8.1f %8.1f %12.0f %8.1f "
                       "%10.0f %8.1f %10.0f %8.0f %8.0f\n", v->kind,
                       v->granule / 1024, v->test, v->clear, v->discard_call,
                       v->discard, v->remap_call, v->remap, v->fault,
                       v->guest_fault, v->guest_map);
    }
}

static void print_blocker(Monitor *mon, const char *what, const char *text,
                          const RamResetBlocker *b)
{
    monitor_printf(mon, "  %s: %s [%s]\n  remedy: %s\n", what, text,
                   RamResetBlockerId_str(b->id), b->remedy);
}

static void print_objects(Monitor *mon, RamResetInfo *info)
{
    RamResetObjectInfoList *o;

    if (!info->objects) {
        monitor_printf(mon, "No ram-reset object\n");
    }
    for (o = info->objects; o; o = o->next) {
        monitor_printf(mon, "Object %s: %s, memdev %s, verify %s, "
                       "%" PRIu32 " thread(s)\n", o->value->id,
                       o->value->qom_type, o->value->memdev ?: "(all)",
                       o->value->verify ? "on" : "off", o->value->threads);
        if (o->value->hugefile) {
            print_hugefile(mon, o->value->hugefile);
        }
        if (o->value->q_auto) {
            print_auto(mon, o->value->q_auto);
        }
    }
    monitor_printf(mon, "Loads: %" PRIu64 " done, %" PRIu64 " of them by "
                   "rewinding, %" PRIu64 " failed, %" PRIu64 " fallback(s)\n",
                   info->loads, info->rewinds, info->failed_loads,
                   info->fallbacks);
    if (info->self_check_failures) {
        monitor_printf(mon, "Self-checks of devices that failed: %" PRIu64
                       "\n", info->self_check_failures);
    }
    if (info->rewind) {
        monitor_printf(mon, "Rewind: baseline of %" PRIu64 " KiB%s%s\n",
                       info->rewind->baseline / 1024,
                       info->rewind->tag ? ", snapshot " : "",
                       info->rewind->tag ?: "");
        if (info->rewind->blocker) {
            print_blocker(mon, "not possible", info->rewind->blocker,
                          info->rewind->blocker_info);
        }
    }
}

static void print_template(Monitor *mon, RamResetTemplateInfo *t)
{
    monitor_printf(mon, "Templates: %" PRIu64 " MiB in %s; ", t->size >> 20,
                   t->dir);
    if (t->file) {
        monitor_printf(mon, "%" PRIu64 " KiB of RAM in %s", t->content / 1024,
                       t->file);
    } else {
        monitor_printf(mon, "none in use");
    }
    monitor_printf(mon, "%s%s\n", t->problem ? ": " : "", t->problem ?: "");
}

static void print_phases(Monitor *mon, RamResetPhases *p)
{
    monitor_printf(mon, "  check %.3f ms, disk revert %.3f ms, "
                   "system reset %.3f ms, RAM reset %.3f ms, "
                   "RAM load %.3f ms, device load %.3f ms, verify %.3f ms, "
                   "total %.3f ms\n", p->check / 1e6, p->disk_revert / 1e6,
                   p->system_reset / 1e6, p->ram_reset / 1e6,
                   p->ram_load / 1e6, p->device_load / 1e6, p->verify / 1e6,
                   p->total / 1e6);
}

static void print_decision(Monitor *mon, RamResetDecision *d)
{
    RamResetCandidateList *c;

    monitor_printf(mon, "    KiB: %" PRIu64 " populated, %" PRIu64 " expected "
                   "from the snapshot, %" PRIu64 " to be used again",
                   d->resident / 1024, d->stored / 1024, d->again / 1024);
    monitor_printf(mon, "; %" PRIu64 " discarded of a split block\n",
                   d->discarded / 1024);
    for (c = d->candidates; c; c = c->next) {
        RamResetCandidate *v = c->value;

        if (v->refused) {
            monitor_printf(mon, "    %-8s refused: %s\n", v->strategy,
                           v->refused);
        } else {
            monitor_printf(mon, "    %-8s reset %.3f ms, faults of the load "
                           "%.3f ms, of the guest %.3f ms, owed %.3f ms, "
                           "leaves %" PRIu64 " KiB\n", v->strategy,
                           v->reset / 1e6, v->load / 1e6, v->guest / 1e6,
                           v->owed / 1e6, v->resident / 1024);
        }
    }
}

static void print_block(Monitor *mon, RamResetBlockInfo *b)
{
    monitor_printf(mon, "  %s: %" PRIu64 " KiB in %" PRIu64 " KiB pages, %s",
                   b->name, b->size / 1024, b->page_size / 1024,
                   b->strategy ?: "left alone");
    monitor_printf(mon, " (%s)%s\n", b->reason,
                   b->fallback ? ", FALLBACK" : "");
    if (b->decision) {
        print_decision(mon, b->decision);
    }
    monitor_printf(mon, "    reset in %.3f ms; pages: %" PRIu64 " discarded, "
                   "%" PRIu64 " cleared, %" PRIu64 " skipped, "
                   "%" PRIu64 " checked, %" PRIu64 " copied, "
                   "%" PRIu64 " mapped, "
                   "%" PRIu64 " dirty, %" PRIu64 " untracked, "
                   "%" PRIu64 " compared; "
                   "%" PRIu64 " system call(s)\n", b->reset_ns / 1e6,
                   b->discarded_pages, b->cleared_pages, b->skipped_pages,
                   b->checked_pages, b->copied_pages, b->mapped_pages,
                   b->dirty_pages, b->untracked_pages, b->compared_pages,
                   b->system_calls);
}

static void hmp_info_ram_reset(Monitor *mon, const QDict *qdict)
{
    g_autoptr(RamResetInfo) info = qmp_query_ram_reset(NULL);
    RamResetBlockInfoList *b;

    print_objects(mon, info);
    if (info->q_template) {
        print_template(mon, info->q_template);
    }
    if (!info->last_load) {
        return;
    }
    monitor_printf(mon, "Last load: '%s', %s\n", info->last_load->tag,
                   info->last_load->success ? "done" : "FAILED");
    if (info->last_load->blocker) {
        print_blocker(mon, "loaded as a whole", info->last_load->blocker,
                      info->last_load->blocker_info);
    }
    if (info->last_load->q_template) {
        monitor_printf(mon, "  RAM from the template %s\n",
                       info->last_load->q_template);
    }
    print_phases(mon, info->last_load->phases);
    for (b = info->last_load->blocks; b; b = b->next) {
        print_block(mon, b->value);
    }
}

static void ram_reset_hmp_init(void)
{
    monitor_register_hmp("ram-reset", true, hmp_info_ram_reset);
}

type_init(ram_reset_hmp_init)
