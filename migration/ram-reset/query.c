/*
 * QMP command for RAM reset: objects, and results of loads
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/clone-visitor.h"
#include "qapi/qapi-commands-ram-reset.h"
#include "qapi/qapi-visit-ram-reset.h"
#include "qapi/util.h"
#include "system/ram-reset-devices.h"
#include "system/ram-reset-load.h"
#include "system/ram-reset-rewind.h"
#include "system/ram-reset-template.h"
#include "migration/ram-reset/baseline.h"
#include "migration/ram-reset/incoming.h"
#include "migration/ram-reset/query.h"
#include "migration/ram-reset/verify/self-check.h"

/* Enough to show a rare slow load, and few enough to be soon all recent */
#define RECENT 100

/* Protected by the BQL */
static struct {
    uint64_t loads, failed, rewinds;
    RamResetLoadInfo *last;     /* NULL before the first one */
    RamResetPhases recent[RECENT];      /* load n is at n % RECENT */
} done;

static uint64_t query_phase(int64_t from, int64_t to)
{
    return from && to ? to - from : 0;
}

RamResetPhases *ram_reset_query_phases(const RamResetTimes *times)
{
    RamResetPhases *phases = g_new0(RamResetPhases, 1);

    phases->check = query_phase(times->start, times->checked);
    phases->disk_revert = query_phase(times->checked, times->reverted);
    phases->system_reset = query_phase(times->reverted, times->was_reset);
    phases->ram_reset = query_phase(times->was_reset, times->zeroed) +
                        times->completing;
    phases->ram_load = query_phase(times->zeroed + times->completing,
                                   times->ram_loaded);
    phases->device_load = query_phase(times->ram_verified, times->end);
    phases->verify = query_phase(times->ram_loaded, times->ram_verified) +
                     query_phase(times->end, times->verified);
    phases->total = (times->verified ?: times->end) - times->start;
    return phases;
}

void ram_reset_count_load(RamResetLoadInfo *info)
{
    if (info->success) {
        unsigned all = ram_reset_enabled() ? ram_reset_devices_count() : 0;

        info->devices_loaded = MAX(all, info->devices_kept) -
                               info->devices_kept;
        done.recent[done.loads % RECENT] = *info->phases;
    }
    done.loads += info->success;
    done.failed += !info->success;
    done.rewinds += info->success && info->rewound;
    qapi_free_RamResetLoadInfo(done.last);
    done.last = info;
    info->blocker = ram_reset_blocker_text(info->blocker_info);
}

static void add_phases(RamResetPhases *sum, const RamResetPhases *p,
                       unsigned divisor)
{
    sum->check += p->check / divisor;
    sum->disk_revert += p->disk_revert / divisor;
    sum->system_reset += p->system_reset / divisor;
    sum->ram_reset += p->ram_reset / divisor;
    sum->ram_load += p->ram_load / divisor;
    sum->device_load += p->device_load / divisor;
    sum->verify += p->verify / divisor;
    sum->total += p->total / divisor;
}

static RamResetRecentLoads *query_recent(void)
{
    RamResetRecentLoads *r = g_new0(RamResetRecentLoads, 1);
    const RamResetPhases *slowest = &done.recent[0];
    RamResetPhases sum = {};

    r->loads = MIN(done.loads, RECENT);
    for (unsigned i = 0; i < r->loads; i++) {
        add_phases(&sum, &done.recent[i], 1);
        if (done.recent[i].total > slowest->total) {
            slowest = &done.recent[i];
        }
    }
    r->mean = g_new0(RamResetPhases, 1);
    add_phases(r->mean, &sum, r->loads);
    r->slowest = QAPI_CLONE(RamResetPhases, slowest);
    return r;
}

static RamResetKnownSnapshot *query_known(const RamResetSnapshot *s)
{
    RamResetKnownSnapshot *info = g_new0(RamResetKnownSnapshot, 1);

    info->tag = g_strdup(s->info.name);
    info->current = s == ram_reset_snapshot_current();
    info->kind = s->vmstate ? RAM_RESET_SAVE_KIND_MEMORY
                            : RAM_RESET_SAVE_KIND_IMAGE;
    info->has_pinned = ram_reset_snapshot_is_pinned(s);
    info->pinned = s->pinned ? RAM_RESET_PIN_USER : RAM_RESET_PIN_MEMORY;
    ram_reset_query_point(s->point, info);
    return info;
}

/* The snapshot used last first */
static void query_snapshots(RamResetRewindInfo *info)
{
    RamResetKnownSnapshotList **known = &info->snapshots;
    strList **lost = &info->lost_pins;
    g_autoptr(GList) all = ram_reset_snapshots();

    for (GList *l = all; l; l = l->next) {
        const RamResetSnapshot *s = l->data;

        if (ram_reset_has_point(s->point)) {
            QAPI_LIST_APPEND(known, query_known(s));
        } else if (s->pinned) {
            QAPI_LIST_APPEND(lost, g_strdup(s->info.name));
        }
    }
}

RamResetInfo *qmp_query_ram_reset(Error **errp)
{
    RamResetInfo *info = g_new0(RamResetInfo, 1);

    info->objects = ram_reset_query_objects();
    info->fallbacks = ram_reset_fallbacks();
    info->loads = done.loads;
    info->failed_loads = done.failed;
    info->rewinds = done.rewinds;
    info->q_template = ram_reset_query_template();
    info->incoming = ram_reset_query_incoming();
    info->rewind = ram_reset_query_rewind();
    if (info->rewind) {
        info->rewind->tag = g_strdup(ram_reset_baseline_tag());
        query_snapshots(info->rewind);
        info->has_loaded_devices = true;
        info->loaded_devices = ram_reset_query_loaded_devices();
    }
    info->self_check_failures = ram_reset_self_check_failures();
    if (done.last) {
        info->last_load = QAPI_CLONE(RamResetLoadInfo, done.last);
    }
    if (done.loads) {
        info->recent_loads = query_recent();
    }
    return info;
}
