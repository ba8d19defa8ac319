/*
 * snapctl: the guest's commands and their results
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "block/snapshot.h"
#include "hw/misc/snapctl-internal.h"
#include "migration/ram-reset.h"
#include "migration/snapshot.h"
#include "qapi/clone-visitor.h"
#include "qapi/error.h"
#include "qapi/qapi-commands-snapctl.h"
#include "qapi/qapi-events-snapctl.h"
#include "qapi/qapi-visit-snapctl.h"
#include "qemu/error-report.h"
#include "qemu/main-loop.h"
#include "qemu/timer.h"
#include "system/cpus.h"
#include "system/ram-reset-compat.h"
#include "system/runstate.h"
#include "system/ram-reset/trace.h"

/* A guest must not be able to fill the host's log */
#define LOG_INTERVAL_NS (60 * NANOSECONDS_PER_SECOND)

bool snapctl_is_allowed(const SnapctlState *s, uint32_t command)
{
    SnapctlAllow needed = command == SNAPCTL_COMMAND_SAVE ? SNAPCTL_ALLOW_SAVE
                                                          : SNAPCTL_ALLOW_LOAD;

    return s->allow == SNAPCTL_ALLOW_BOTH || s->allow == needed;
}

static bool is_too_soon(const SnapctlState *s)
{
    /* use the host's clock, since a load takes the guest's clock back */
    return s->used &&
           get_clock() - s->used_ns < (int64_t)s->min_interval * SCALE_MS;
}

/* An error code, or SNAPCTL_ERROR_NONE */
static uint32_t command_check(const SnapctlState *s, uint32_t command)
{
    if (command != SNAPCTL_COMMAND_SAVE && command != SNAPCTL_COMMAND_LOAD) {
        return SNAPCTL_ERROR_COMMAND;
    }
    if (!snapctl_is_allowed(s, command)) {
        return SNAPCTL_ERROR_DENIED;
    }
    if (s->slot >= s->nr_tags) {
        return SNAPCTL_ERROR_SLOT;
    }
    if (is_too_soon(s)) {
        return SNAPCTL_ERROR_TOO_SOON;
    }
    return SNAPCTL_ERROR_NONE;
}

void snapctl_finish(SnapctlState *s, uint32_t status, uint32_t error)
{
    s->command = 0;
    s->status = status;
    s->error = error;
}

static void command_refuse(SnapctlState *s, uint32_t error)
{
    trace_snapctl_refused(s->slot, error);
    s->refused++;
    snapctl_finish(s, SNAPCTL_STATUS_REFUSED, error);
}

static void begin_stopped(void *opaque)
{
    SnapctlState *s = opaque;

    /* it may have been unplugged since */
    if (s->bh) {
        qemu_bh_schedule(s->bh);
    }
    object_unref(OBJECT(s));
}

void snapctl_begin(SnapctlState *s, uint32_t command)
{
    uint32_t error = command_check(s, command);

    if (error) {
        command_refuse(s, error);
        return;
    }
    trace_snapctl_accepted(s->slot, command);
    s->command = command;
    s->status = SNAPCTL_STATUS_PENDING;
    s->error = SNAPCTL_ERROR_NONE;
    /* The vCPU would only wait for the result, and delay the main loop */
    object_ref(OBJECT(s));
    ram_reset_vcpu_stop_current(begin_stopped, s);
}

/*
 * A requested shutdown or reset is meant for the current state of the guest, so
 * it comes first; the main loop does it in its next iteration.
 */
static bool must_wait(void)
{
    return qemu_shutdown_requested_get() != SHUTDOWN_CAUSE_NONE ||
           qemu_reset_requested_get() != SHUTDOWN_CAUSE_NONE;
}

/* QEMU reports each failure, but not always its reason */
static void command_fail(SnapctlState *s, Error **errp)
{
    snapctl_finish(s, SNAPCTL_STATUS_FAILED, SNAPCTL_ERROR_HOST);
    if (!*errp) {
        error_setg(errp, "QEMU gives no reason");
    }
}

static bool command_load(SnapctlState *s, const char *tag, Error **errp)
{
    ERRP_GUARD();
    RunState state = runstate_get();

    ram_reset_vcpus_stop(RUN_STATE_RESTORE_VM);
    if (must_wait()) {
        vm_start();
        return false;
    }
    if (!load_snapshot(tag, NULL, false, NULL, errp)) {
        command_fail(s, errp);
    }
    /* also after a load that was refused before it changed anything */
    if (ram_reset_vm_is_whole(NULL)) {
        load_snapshot_resume(state);
    }
    return true;
}

static void command_save(SnapctlState *s, const char *tag, Error **errp)
{
    ERRP_GUARD();

    ram_reset_save_as(s->save_kind);
    ram_reset_save_within((const char *const *)s->tags, s->memory_limit);
    if (save_snapshot(tag, true, NULL, false, NULL, errp)) {
        snapctl_finish(s, SNAPCTL_STATUS_SAVED, SNAPCTL_ERROR_NONE);
        return;
    }
    command_fail(s, errp);
    if (ram_reset_save_hit_limit()) {
        s->error = SNAPCTL_ERROR_LIMIT;
        error_append_hint(errp, "Delete the snapshot of a slot, or raise "
                          "memory-limit= of the device.\n");
    }
}

static void send_event(const SnapctlState *s, const char *path)
{
    g_autoptr(SnapctlCompleted) data = g_new0(SnapctlCompleted, 1);

    data->qom_path = g_strdup(path);
    QAPI_CLONE_MEMBERS(SnapctlOutcome, qapi_SnapctlCompleted_base(data),
                       s->last);
    qapi_event_send_snapctl_completed(data);
}

/* Takes ownership of @err */
static void log_failure(SnapctlState *s, Error *err)
{
    int64_t now = get_clock();

    if (s->logged_ns && now - s->logged_ns < LOG_INTERVAL_NS) {
        s->unlogged++;
        error_free(err);
        return;
    }
    if (s->unlogged) {
        error_append_hint(&err, "%" PRIu64 " more have failed since the last "
                          "message; query-snapctl counts them.\n",
                          s->unlogged);
    }
    error_report_err(err);
    s->logged_ns = now;
    s->unlogged = 0;
}

/* Takes ownership of @err, which is NULL if the command succeeded */
static void command_report(SnapctlState *s, const char *path, uint32_t command,
                           uint32_t slot, int64_t time_ns, Error *err)
{
    SnapctlOutcome *last = g_new0(SnapctlOutcome, 1);

    last->command = command == SNAPCTL_COMMAND_SAVE ? SNAPCTL_ACTION_SAVE
                                                    : SNAPCTL_ACTION_LOAD;
    last->slot = slot;
    last->tag = g_strdup(s->tags[slot]);
    last->success = !err;
    last->time_ns = time_ns;
    last->generation = s->generation;
    if (err) {
        s->failures++;
        last->error = g_strdup(error_get_pretty(err));
        error_prepend(&err, "snapctl: the guest's %s of snapshot '%s': ",
                      SnapctlAction_str(last->command), last->tag);
        log_failure(s, err);
    } else if (last->command == SNAPCTL_ACTION_SAVE) {
        s->saves++;
    } else {
        s->loads++;
    }
    trace_snapctl_completed(slot, command, last->success, time_ns);
    qapi_free_SnapctlOutcome(s->last);
    s->last = last;
    send_event(s, path);
}

static bool is_missing(const char *tag)
{
    /* if there is no disk, all disks have it */
    return !bdrv_all_find_vmstate_bs(NULL, false, NULL, NULL) ||
           bdrv_all_has_snapshot(tag, false, NULL, NULL) == 0;
}

/* An error code, or SNAPCTL_ERROR_NONE */
static uint32_t check_now(const SnapctlState *s)
{
    /* check again: a migrated command was checked by another host */
    uint32_t error = command_check(s, s->command);

    if (error) {
        return error;
    }
    if (!ram_reset_migration_is_over()) {
        return SNAPCTL_ERROR_BUSY;
    }
    if (s->command == SNAPCTL_COMMAND_LOAD && is_missing(s->tags[s->slot])) {
        return SNAPCTL_ERROR_EMPTY;
    }
    return SNAPCTL_ERROR_NONE;
}

static void command_execute(SnapctlState *s)
{
    /* a load may unplug the device */
    g_autofree char *path = object_get_canonical_path(OBJECT(s));
    uint32_t command = s->command, slot = s->slot;
    uint32_t error = check_now(s);
    int64_t begin = get_clock();
    Error *err = NULL;

    if (error) {
        command_refuse(s, error);
        resume_all_vcpus();
    } else if (command == SNAPCTL_COMMAND_SAVE) {
        command_save(s, s->tags[slot], &err);
        command_report(s, path, command, slot, get_clock() - begin, err);
    } else if (command_load(s, s->tags[slot], &err)) {
        command_report(s, path, command, slot, get_clock() - begin, err);
    } else {
        qemu_bh_schedule(s->bh);
        return;
    }
    s->used = true;
    s->used_ns = get_clock();
}

/* QEMU runs this outside of the vCPU's exit, between other work of its own */
static void command_bh(void *opaque)
{
    SnapctlState *s = opaque;
    RunState requested;

    /* the command of a stopped guest waits until the guest continues */
    if (!s->command || !runstate_is_running()) {
        resume_all_vcpus();
    } else if (must_wait()) {
        qemu_bh_schedule(s->bh);
    } else if (qemu_vmstop_requested(&requested)) {
        vm_stop(requested);
    } else {
        object_ref(OBJECT(s));
        command_execute(s);
        object_unref(OBJECT(s));
    }
}

/*
 * The command that a vCPU has written and waits for has been lost: resume the
 * guest
 */
static void resume_bh(void *opaque)
{
    resume_all_vcpus();
}

void snapctl_go_on(SnapctlState *s)
{
    if (s->command) {
        qemu_bh_schedule(s->bh);
    }
}

void snapctl_command_init(SnapctlState *s)
{
    /*
     * Other contexts run their bottom halves even while a snapshot is being
     * saved or loaded.  No guard: until all vCPUs have been stopped, they may
     * read registers.
     */
    s->bh = aio_bh_new_guarded(iohandler_get_aio_context(), command_bh, s,
                               NULL);
}

void snapctl_command_exit(SnapctlState *s)
{
    g_clear_pointer(&s->bh, qemu_bh_delete);
    if (s->command) {
        aio_bh_schedule_oneshot(iohandler_get_aio_context(), resume_bh, NULL);
    }
}

SnapctlState *snapctl_find(bool *ambiguous)
{
    Object *o = object_resolve_path_type("", TYPE_SNAPCTL, ambiguous);

    return o ? SNAPCTL(o) : NULL;
}

SnapctlInfo *qmp_query_snapctl(Error **errp)
{
    SnapctlState *s = snapctl_find(NULL);
    SnapctlInfo *info = g_new0(SnapctlInfo, 1);
    strList **tail;

    if (!s || !qdev_is_realized(DEVICE(s))) {
        info->qom_path = g_strdup("");
        return info;
    }
    info->present = true;
    info->qom_path = object_get_canonical_path(OBJECT(s));
    info->allow = s->allow;
    tail = &info->slots;
    for (uint32_t i = 0; i < s->nr_tags; i++) {
        QAPI_LIST_APPEND(tail, g_strdup(s->tags[i]));
    }
    info->save_kind = s->save_kind;
    info->memory = ram_reset_memory_size((const char *const *)s->tags);
    info->memory_limit = s->memory_limit;
    info->min_interval = s->min_interval;
    if (s->region) {
        info->has_region_size = true;
        info->region_size = memory_region_size(
            host_memory_backend_get_memory(s->region));
    }
    info->generation = s->generation;
    info->pending = s->command;
    info->saves = s->saves;
    info->loads = s->loads;
    info->failures = s->failures;
    info->refused = s->refused;
    info->last = s->last ? QAPI_CLONE(SnapctlOutcome, s->last) : NULL;
    return info;
}
