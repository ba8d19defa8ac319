/*
 * HMP commands for RAM reset
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/qapi-commands-ram-reset.h"
#include "qemu/cutils.h"
#include "qemu/module.h"
#include "monitor/hmp.h"
#include "monitor/monitor.h"
#include "migration/ram-reset/hmp-rewind.h"

/* Width of wrapped texts */
#define COLUMNS     78
/* ROMs, and RAM blocks below this size in bytes, share one line */
#define SMALL_BLOCK (1 << 20)

static void add_words(GString *text, bool wanted, const char *words)
{
    if (wanted) {
        g_string_append_printf(text, "%s%s", text->len ? ", " : "", words);
    }
}

/* Omits 0 */
static void add_number(GString *text, uint64_t number, const char *what)
{
    g_autofree char *words = g_strdup_printf("%" PRIu64 " %s", number, what);

    add_words(text, number, words);
}

static void print_hugefile(Monitor *mon, RamResetHugefileInfo *h)
{
    g_autoptr(GString) text = g_string_new(NULL);

    ram_reset_print_label(mon, "    file");
    monitor_printf(mon, "%s, unlink=%s, state %s\n", h->file,
                   RamResetUnlink_str(h->unlink), h->state);
    g_string_append(text, h->record);
    add_number(text, h->reused_pages, "hugepages reused");
    add_number(text, h->dirty_pages, "dirty");
    ram_reset_print_label(mon, "    at start");
    monitor_printf(mon, "%s, %" PRIu64 " KiB cleared in %.3f ms\n", text->str,
                   h->cleared_bytes / 1024, h->clear_ns / 1e6);
}

static void print_auto(Monitor *mon, RamResetAutoInfo *a)
{
    ram_reset_print_label(mon, "    objective");
    monitor_printf(mon, "%s\n", RamResetObjective_str(a->objective));
    if (!a->costs) {
        monitor_printf(mon, "    no costs measured yet\n");
        return;
    }
    monitor_printf(mon, "    costs in ns (%s)\n", a->calibration_ns
                                                  ? "measured" : "given");
    monitor_printf(mon, "    %-9s %8s %6s %6s %12s %7s %10s %6s %8s %6s %6s\n",
                   "memory", "granule", "test", "clear", "discard call",
                   "discard", "remap call", "remap", "fault", "guest", "map");
    for (RamResetCostsList *c = a->costs; c; c = c->next) {
        RamResetCosts *v = c->value;

        monitor_printf(mon, "    %-9s %4" PRIu64 " KiB %6.1f %6.1f %12.0f "
                       "%7.1f %10.0f %6.1f %8.0f %6.0f %6.0f\n", v->kind,
                       v->granule / 1024, v->test, v->clear, v->discard_call,
                       v->discard, v->remap_call, v->remap, v->fault,
                       v->guest_fault, v->guest_map);
    }
}

static void print_object(Monitor *mon, RamResetObjectInfo *o)
{
    g_autoptr(GString) text = g_string_new(o->qom_type);

    g_string_append_printf(text, ", %s%s", o->memdev ? "memdev " : "all RAM",
                           o->memdev ?: "");
    add_words(text, o->rewind, "rewind on");
    add_words(text, !o->unchanged_devices, "unchanged-devices off");
    add_words(text, o->verify, "verify on");
    add_words(text, o->new_vmgenid, "new-vmgenid on");
    add_number(text, o->threads, o->threads > 1 ? "threads" : "thread");
    monitor_printf(mon, "  %-13s %s\n", o->id, text->str);
    if (o->hugefile) {
        print_hugefile(mon, o->hugefile);
    }
    if (o->q_auto) {
        print_auto(mon, o->q_auto);
    }
}

static void print_template(Monitor *mon, RamResetTemplateInfo *t)
{
    ram_reset_print_label(mon, "Templates");
    monitor_printf(mon, "%" PRIu64 " MiB in %s\n", t->size >> 20, t->dir);
    if (t->file) {
        ram_reset_print_label(mon, "  in use");
        monitor_printf(mon, "%s, %" PRIu64 " KiB of RAM\n", t->file,
                       t->content / 1024);
    }
    if (t->problem) {
        ram_reset_print_label(mon, "  problem");
        monitor_printf(mon, "%s\n", t->problem);
    }
}

static void print_incoming(Monitor *mon, RamResetIncomingInfo *i)
{
    const char *from = i->q_template ?: i->file;

    ram_reset_print_label(mon, "Incoming");
    monitor_printf(mon, "%s %s\n", i->mapped ? "mapped from" : "read from",
                   i->mapped && from ? from : i->file ?: "a pipe");
    if (i->reason) {
        ram_reset_print_label(mon, "  reason");
        monitor_printf(mon, "%s\n", i->reason);
    }
    for (RamResetIncomingBlockList *l = i->blocks; l; l = l->next) {
        if (l->value->reason) {
            monitor_printf(mon, "  %-13s not mapped: %s\n", l->value->name,
                           l->value->reason);
        }
    }
}

static void print_loads(Monitor *mon, RamResetInfo *info)
{
    g_autoptr(GString) text = g_string_new(NULL);

    g_string_printf(text, "%" PRIu64 " done", info->loads);
    add_number(text, info->rewinds, "of them by rewinding");
    add_number(text, info->failed_loads, "failed");
    add_number(text, info->fallbacks, "fallback(s)");
    add_number(text, info->self_check_failures, "failed self-check(s)");
    monitor_printf(mon, "%-15s %s\n", "Loads", text->str);
}

static void print_time(Monitor *mon, const char *what, uint64_t last,
                       uint64_t mean, uint64_t slowest)
{
    if (last || mean || slowest) {
        monitor_printf(mon, "  %-13s %10.3f %10.3f %10.3f\n", what, last / 1e6,
                       mean / 1e6, slowest / 1e6);
    }
}

static void print_times(Monitor *mon, const RamResetPhases *last,
                        const RamResetRecentLoads *recent)
{
    static const RamResetPhases none;
    const RamResetPhases *m = recent ? recent->mean : &none;
    const RamResetPhases *s = recent ? recent->slowest : &none;

    ram_reset_print_label(mon, "Time in ms");
    monitor_printf(mon, "%10s %10s %10s   of the last %u load(s)\n", "last",
                   "mean", "slowest", recent ? recent->loads : 0);
#define PRINT_TIME(what, phase) \
    print_time(mon, what, last->phase, m->phase, s->phase)
    PRINT_TIME("check", check);
    PRINT_TIME("disk revert", disk_revert);
    PRINT_TIME("system reset", system_reset);
    PRINT_TIME("RAM reset", ram_reset);
    PRINT_TIME("RAM load", ram_load);
    PRINT_TIME("device load", device_load);
    PRINT_TIME("verify", verify);
    PRINT_TIME("total", total);
#undef PRINT_TIME
}

static void print_estimate(Monitor *mon, RamResetCandidate *v)
{
    if (v->refused) {
        monitor_printf(mon, "    %-9s refused: %s\n", v->strategy, v->refused);
    } else {
        monitor_printf(mon, "    %-9s %9.3f %11.3f %12.3f %8.3f %10" PRIu64
                       " KiB\n", v->strategy, v->reset / 1e6, v->load / 1e6,
                       v->guest / 1e6, v->owed / 1e6, v->resident / 1024);
    }
}

static void print_decision(Monitor *mon, RamResetDecision *d)
{
    g_autoptr(GString) text = g_string_new(NULL);

    add_number(text, d->resident / 1024, "populated");
    add_number(text, d->stored / 1024, "expected from the snapshot");
    add_number(text, d->again / 1024, "to be used again");
    add_number(text, d->discarded / 1024, "discarded by split");
    if (text->len) {
        monitor_printf(mon, "    KiB: %s\n", text->str);
    }
    monitor_printf(mon, "    %-9s %9s %11s %12s %8s %14s\n", "in ms", "reset",
                   "load faults", "guest faults", "owed", "left in use");
    for (RamResetCandidateList *c = d->candidates; c; c = c->next) {
        print_estimate(mon, c->value);
    }
}

static void print_pages(Monitor *mon, const RamResetBlockInfo *b)
{
    g_autoptr(GString) text = g_string_new(NULL);

    add_number(text, b->dirty_pages, "dirty");
    add_number(text, b->untracked_pages, "untracked");
    add_number(text, b->compared_pages, "compared");
    add_number(text, b->copied_pages, "copied");
    add_number(text, b->mapped_pages, "mapped");
    add_number(text, b->cleared_pages, "cleared");
    add_number(text, b->discarded_pages, "discarded");
    add_number(text, b->checked_pages, "checked");
    add_number(text, b->skipped_pages, "skipped");
    if (text->len) {
        monitor_printf(mon, "    pages: %s", text->str);
        if (b->system_calls) {
            monitor_printf(mon, "; %" PRIu64 " system call(s)",
                           b->system_calls);
        }
        monitor_printf(mon, "\n");
    }
}

static void print_size(Monitor *mon, const char *name,
                       const RamResetBlockInfo *b, const char *how)
{
    g_autofree char *size = size_to_str(b->size);

    monitor_printf(mon, "  %-24s %9s  %-10s", name, size, how);
    if (b->reset_ns) {
        monitor_printf(mon, " %8.3f ms", b->reset_ns / 1e6);
    }
    monitor_printf(mon, "\n");
}

static void print_block(Monitor *mon, const RamResetBlockInfo *b)
{
    g_autofree char *pages = size_to_str(b->page_size);

    print_size(mon, b->name, b, b->strategy ?: "left alone");
    monitor_printf(mon, "    %s%s, pages of %s\n",
                   b->fallback ? "FALLBACK: " : "", b->reason, pages);
    if (b->decision) {
        print_decision(mon, b->decision);
    }
    print_pages(mon, b);
}

static bool is_minor(const RamResetBlockInfo *b)
{
    return (b->rom || b->size < SMALL_BLOCK) && !b->fallback;
}

static void sum_block(RamResetBlockInfo *sum, const RamResetBlockInfo *b)
{
    sum->size += b->size;
    sum->reset_ns += b->reset_ns;
    sum->discarded_pages += b->discarded_pages;
    sum->cleared_pages += b->cleared_pages;
    sum->system_calls += b->system_calls;
    sum->skipped_pages += b->skipped_pages;
    sum->checked_pages += b->checked_pages;
    sum->copied_pages += b->copied_pages;
    sum->mapped_pages += b->mapped_pages;
    sum->dirty_pages += b->dirty_pages;
    sum->untracked_pages += b->untracked_pages;
    sum->compared_pages += b->compared_pages;
}

static void print_blocks(Monitor *mon, const RamResetBlockInfoList *blocks)
{
    RamResetBlockInfo sum = {};
    unsigned minor = 0;
    const RamResetBlockInfoList *l;

    if (blocks) {
        monitor_printf(mon, "RAM of the last load\n");
    }
    for (l = blocks; l; l = l->next) {
        if (is_minor(l->value)) {
            sum_block(&sum, l->value);
            minor++;
        } else {
            print_block(mon, l->value);
        }
    }
    if (minor) {
        g_autofree char *name = g_strdup_printf("%u ROMs and small blocks",
                                                minor);

        print_size(mon, name, &sum, "");
        print_pages(mon, &sum);
    }
}

static void print_last_load(Monitor *mon, const RamResetLoadInfo *load)
{
    ram_reset_print_label(mon, "Last load");
    monitor_printf(mon, "'%s', %s\n", load->tag, !load->success ? "FAILED" :
                   load->rewound ? "a rewind" : "a whole one");
    if (load->blocker) {
        ram_reset_print_blocker(mon, load->blocker, load->blocker_info);
    }
    if (load->q_template) {
        ram_reset_print_label(mon, "  template");
        monitor_printf(mon, "%s\n", load->q_template);
    }
    if (load->devices_loaded || load->devices_kept) {
        ram_reset_print_label(mon, "  devices");
        monitor_printf(mon, "%u loaded, %u left unchanged\n",
                       load->devices_loaded, load->devices_kept);
    }
}

static bool is_reason_new(const RamResetLoadedDevicesList *before,
                          const RamResetLoadedDevicesList *entry)
{
    while (before != entry && strcmp(before->value->reason,
                                     entry->value->reason)) {
        before = before->next;
    }
    return before == entry;
}

/* Print all classes with the reason of @entry, which is the first of them */
static void print_devices_of(Monitor *mon,
                             const RamResetLoadedDevicesList *entry)
{
    const char *reason = entry->value->reason;
    int column = COLUMNS;

    monitor_printf(mon, "  %s:", reason);
    for (; entry; entry = entry->next) {
        const RamResetLoadedDevices *d = entry->value;
        g_autofree char *text =
            d->count > 1 ? g_strdup_printf("%s (%u)", d->q_class, d->count)
                         : g_strdup(d->q_class);

        if (!strcmp(d->reason, reason)) {
            column += strlen(text) + 1;
            if (column > COLUMNS) {
                monitor_printf(mon, "\n   ");
                column = strlen(text) + 4;
            }
            monitor_printf(mon, " %s", text);
        }
    }
    monitor_printf(mon, "\n");
}

static void print_loaded_devices(Monitor *mon,
                                 const RamResetLoadedDevicesList *all)
{
    if (all) {
        monitor_printf(mon, "Devices that each load loads\n");
    }
    for (const RamResetLoadedDevicesList *l = all; l; l = l->next) {
        if (is_reason_new(all, l)) {
            print_devices_of(mon, l);
        }
    }
}

static void hmp_info_ram_reset(Monitor *mon, const QDict *qdict)
{
    g_autoptr(RamResetInfo) info = qmp_query_ram_reset(NULL);

    monitor_printf(mon, "Objects%s\n", info->objects ? "" : "         none");
    for (RamResetObjectInfoList *o = info->objects; o; o = o->next) {
        print_object(mon, o->value);
    }
    print_loads(mon, info);
    if (info->rewind) {
        ram_reset_print_next_load(mon, info->rewind);
    }
    if (info->q_template) {
        print_template(mon, info->q_template);
    }
    if (info->incoming) {
        print_incoming(mon, info->incoming);
    }
    if (info->last_load) {
        print_last_load(mon, info->last_load);
        print_times(mon, info->last_load->phases, info->recent_loads);
        print_blocks(mon, info->last_load->blocks);
    }
    print_loaded_devices(mon, info->loaded_devices);
}

static void ram_reset_hmp_init(void)
{
    monitor_register_hmp("ram-reset", true, hmp_info_ram_reset);
}

type_init(ram_reset_hmp_init)
