/*
 * RAM reset: other processes, and the kernel, that do a device's work
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/error-report.h"
#include "qemu/main-loop.h"
#include "system/ram-reset.h"
#include "system/ram-reset-compat.h"
#include "system/runstate.h"
#include "system/ram-reset-load.h"
#include "system/ram-reset/block/listeners.h"
#include "system/ram-reset/block/vhost-queues.h"
#include "system/ram-reset/block/vhost.h"

/* Protected by the BQL */
static struct {
    GArray *seen;               /* of VhostQueues; NULL before the watch */
    bool running;               /* all devices have been started */
    bool writing;               /* a disk's back end may be writing */
    RamResetBlockerId busy, unlogged;   /* _MAX: nothing is */
} state = {
    .busy = RAM_RESET_BLOCKER__MAX,
    .unlogged = RAM_RESET_BLOCKER__MAX,
};

static void note_blocker(RamResetBlockerId *why, RamResetBlockerId what)
{
    if (*why == RAM_RESET_BLOCKER__MAX) {
        *why = what;
    }
}

static VhostQueues *seen_nr(unsigned i)
{
    return &g_array_index(state.seen, VhostQueues, i);
}

static VhostQueues *find_seen(const struct vhost_dev *dev)
{
    for (unsigned i = 0; i < state.seen->len; i++) {
        if (seen_nr(i)->logger.dev == dev) {
            return seen_nr(i);
        }
    }
    return NULL;
}

void ram_reset_vhost_starts(const struct vhost_dev *dev)
{
    VhostQueues *s = state.seen ? find_seen(dev) : NULL;

    if (s) {
        s->restarted = true;
    }
}

static void vhost_note_queues(const GArray *loggers)
{
    GArray *seen = g_array_new(false, false, sizeof(VhostQueues));

    for (unsigned i = 0; i < loggers->len; i++) {
        const RamResetLogger *logger =
            &g_array_index(loggers, RamResetLogger, i);
        const VhostQueues *before = find_seen(logger->dev);
        VhostQueues now;

        vhost_queues_look(&now, logger);
        /* A lost request stays lost until the guest restarts the device */
        now.restarted = !before || before->restarted;
        if (!now.restarted && before->vdev) {
            memcpy(now.lost, before->lost, sizeof(now.lost));
        }
        g_array_append_val(seen, now);
    }
    g_array_free(state.seen, true);
    state.seen = seen;
}

/* Whether devices are as noted, and none was stopped since the guest runs */
static bool are_as_seen(const GArray *loggers)
{
    for (unsigned i = 0; i < loggers->len; i++) {
        struct vhost_dev *dev = g_array_index(loggers, RamResetLogger, i).dev;
        const VhostQueues *s = find_seen(dev);

        if (!s || !!s->vdev != dev->started || s->restarted) {
            return false;
        }
    }
    return loggers->len == state.seen->len;
}

static void all_started(const GArray *loggers)
{
    /* As stopped: otherwise devices may still finish requests from before */
    bool idle = !state.writing;

    state.busy = RAM_RESET_BLOCKER__MAX;
    state.writing = false;
    vhost_note_queues(loggers);
    for (unsigned i = 0; i < state.seen->len; i++) {
        seen_nr(i)->restarted = false;
        if (idle) {
            vhost_queues_started(seen_nr(i));
        }
        if (!vhost_queues_all_taken(seen_nr(i))) {
            note_blocker(&state.unlogged, RAM_RESET_BLOCKER_VHOST_EARLY);
        }
    }
}

/* The last handler when the guest is resumed, the first when it is stopped */
static void vhost_outermost(void *opaque, bool running, RunState run_state)
{
    g_autoptr(GArray) loggers = ram_reset_loggers();

    state.running = running;
    if (running) {
        all_started(loggers);
        return;
    }
    if (!are_as_seen(loggers)) {
        note_blocker(&state.unlogged, RAM_RESET_BLOCKER_VHOST_RESTARTED);
    }
    vhost_note_queues(loggers);
    for (unsigned i = 0; i < state.seen->len; i++) {
        vhost_queues_wait(seen_nr(i));
    }
}

static void all_stopped(void)
{
    for (unsigned i = 0; i < state.seen->len; i++) {
        const VhostQueues *s = seen_nr(i);
        VhostQueuesState now = vhost_queues_state(s);

        if (s->vdev && !vhost_queues_has_backend(s)) {
            note_blocker(&state.unlogged, RAM_RESET_BLOCKER_VHOST_LOST);
        } else if (now != VHOST_QUEUES_IDLE) {
            note_blocker(&state.busy, RAM_RESET_BLOCKER_VHOST_BUSY);
            state.writing |= now == VHOST_QUEUES_BUSY;
        }
    }
    if (state.busy != RAM_RESET_BLOCKER__MAX) {
        note_blocker(&state.unlogged, state.busy);
    }
}

/* The first handler when the guest is resumed, the last when it is stopped */
static void vhost_innermost(void *opaque, bool running, RunState run_state)
{
    if (!running) {
        all_stopped();
    } else if (ram_reset_vhost_is_started()) {
        note_blocker(&state.unlogged, RAM_RESET_BLOCKER_VHOST_CONNECTED);
    }
}

static void map_changed(MemoryListener *l, MemoryRegionSection *section)
{
    MemoryRegion *mr = section->mr;

    /* As vhost_section(): back ends do not get a display's memory */
    if (state.running && state.seen->len && memory_region_is_ram(mr) &&
        !(memory_region_get_dirty_log_mask(mr) & (1 << DIRTY_MEMORY_VGA))) {
        note_blocker(&state.unlogged, RAM_RESET_BLOCKER_VHOST_MAP_CHANGED);
    }
}

void ram_reset_watch_vhost(void)
{
    /* The last to be told of a change */
    static MemoryListener listener = {
        .name = "ram-reset-vhost",
        .region_add = map_changed,
        .region_del = map_changed,
        .priority = INT_MAX,
    };

    assert(bql_locked());
    if (state.seen) {
        return;
    }
    state.seen = g_array_new(false, false, sizeof(VhostQueues));
    qemu_add_vm_change_state_handler_prio(vhost_outermost, NULL, INT_MAX);
    qemu_add_vm_change_state_handler_prio(vhost_innermost, NULL, INT_MIN);
    memory_listener_register(&listener, &address_space_memory);
    if (phase_check(PHASE_MACHINE_READY) && !runstate_is_running()) {
        g_autoptr(GArray) loggers = ram_reset_loggers();

        if (loggers->len) {
            note_blocker(&state.busy, RAM_RESET_BLOCKER_VHOST_LATE);
        }
    }
}

bool ram_reset_vhost_is_busy(void)
{
    return state.busy != RAM_RESET_BLOCKER__MAX;
}

static bool vhost_end_connection(const VhostQueues *s)
{
    g_autofree char *path = object_get_canonical_path(OBJECT(s->vdev));

    if (!vhost_queues_disconnect(s)) {
        return false;
    }
    warn_report("RAM reset: the back end of vhost device '%s' has not finished "
                "its requests in time, or the guest pretends so; it has been "
                "disconnected, so that it does not write to the memory that is "
                "loaded (with reconnect-ms= on its chardev it comes back)",
                path);
    return true;
}

/* Whether all back ends that were busy when the guest stopped have finished */
static bool end_writing(void)
{
    g_autoptr(GArray) loggers = ram_reset_loggers();

    for (unsigned i = 0; i < loggers->len; i++) {
        const VhostQueues *s =
            find_seen(g_array_index(loggers, RamResetLogger, i).dev);

        if (s && vhost_queues_state(s) == VHOST_QUEUES_BUSY &&
            !vhost_end_connection(s)) {
            return false;
        }
    }
    state.writing = false;
    return true;
}

const char *ram_reset_load_refusal(void)
{
    if (ram_reset_vhost_is_started()) {
        return "the back end of a vhost device has been connected while the "
               "guest was stopped, and is at work; resume the guest (cont), "
               "and load the snapshot then";
    }
    return state.writing && !end_writing()
           ? "the back end of a vhost device has not finished its requests, "
             "and would write to the memory that is loaded; resume the guest "
             "(cont), and try again when its disk answers" : NULL;
}

RamResetBlockerId ram_reset_vhost_unlogged(void)
{
    return ram_reset_vhost_is_busy() ? state.busy : state.unlogged;
}

void ram_reset_vhost_restart_log(void)
{
    state.unlogged = RAM_RESET_BLOCKER__MAX;
}
