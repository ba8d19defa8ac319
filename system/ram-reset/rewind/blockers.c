/*
 * RAM reset: the reasons why a load is not a rewind, and their remedies
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/clone-visitor.h"
#include "qapi/qapi-visit-ram-reset.h"
#include "system/ram-reset/rewind/blockers.h"

#define BLOCKER(id, sentence, remedy)                                   \
    [RAM_RESET_BLOCKER_##id] = {                                        \
        RAM_RESET_BLOCKER_##id, (char *)sentence, NULL, (char *)remedy  \
    }

/*
 * docs/system/ram-reset.rst has the same table, and a test compares them.  QAPI
 * has no const strings; nobody writes to these.
 */
static const RamResetBlocker blockers[] = {
    BLOCKER(NOTHING_LOADED,
            "nothing has been loaded or saved yet",
            "load or save the snapshot; its next load is a rewind"),
    BLOCKER(UNKNOWN_SNAPSHOT,
            "QEMU has no copy of the snapshot's RAM: it has neither loaded nor "
            "saved the snapshot, or rewind-limit had no room for it",
            "load or save the snapshot; its next load is a rewind"),
    BLOCKER(ALTERNATING,
            "more snapshots alternate than rewind-limit has room for",
            "raise rewind-limit=, or load one snapshot twice in a row; its "
            "next load is a rewind"),
    BLOCKER(LOAD_INCOMPLETE,
            "a whole load has begun, and has not ended",
            "load a snapshot to its end"),
    BLOCKER(LOAD_FAILED,
            "the last load has failed",
            "load a snapshot that is not damaged; its next load is a rewind"),
    BLOCKER(VM_STATE_CHANGED,
            "the VM state has changed",
            "load or save the snapshot; its next load is a rewind"),
    BLOCKER(DEVICES_BETWEEN_RAM,
            "the VM state has devices between the sections of RAM",
            "leave out devices that are loaded before RAM, such as "
            "virtio-mem"),
    BLOCKER(MAPPED_RAM,
            "migration capability 'mapped-ram' is on",
            "switch mapped-ram off, and save the snapshot again"),
    BLOCKER(IGNORE_SHARED_CHANGED,
            "migration capability 'x-ignore-shared' has been changed",
            "leave x-ignore-shared as it was for the save"),
    BLOCKER(DIRTY_LOG_USED,
            "a migration has used the dirty log",
            "load or save the snapshot; its next load is a rewind"),
    BLOCKER(DIRTY_LOG_REFUSED,
            "the dirty log cannot be started",
            "leave out the device that the detail names"),
    BLOCKER(OBJECTS_CHANGED,
            "ram-reset objects have been added, removed or changed",
            "load or save the snapshot; its next load is a rewind"),
    BLOCKER(OBJECT_LATE,
            "the object with rewind=on has been added while the machine was "
            "running, and the mappings of devices are not known",
            "load the snapshot; its next load is a rewind"),
    BLOCKER(RAM_ADDED,
            "RAM has been added",
            "save the snapshot again; its next load is a rewind"),
    BLOCKER(RAM_REMOVED,
            "RAM has been removed",
            "save the snapshot again; its next load is a rewind"),
    BLOCKER(RAM_RESIZED,
            "RAM has been resized",
            "load or save the snapshot; its next load is a rewind"),
    BLOCKER(RAM_CHANGED,
            "RAM blocks differ from those of the snapshot",
            "save the snapshot again; its next load is a rewind"),
    BLOCKER(DEVICE_PLUGGED,
            "a device has been plugged",
            "load or save the snapshot; its next load is a rewind"),
    BLOCKER(VCPUS_CHANGED,
            "the number of vCPUs has changed",
            "load or save the snapshot; its next load is a rewind"),
    BLOCKER(VCPU_RING_LOST,
            "a vCPU has been unplugged, and KVM's dirty ring of that vCPU "
            "with the log of its writes",
            "leave out dirty-ring-size=, or unplug no vCPU"),
    BLOCKER(REWIND_LIMIT,
            "the snapshot has more bytes that are not zero than the limit "
            "allows",
            "raise rewind-limit=, or save the snapshot when the guest uses "
            "less memory"),
    BLOCKER(MEMORY_SNAPSHOTS,
            "snapshots are in memory only, and leave no room for another one",
            "delete some of them, unplug memory that they do not have, or "
            "raise rewind-limit="),
    BLOCKER(PINNED_SNAPSHOTS,
            "pinned snapshots leave no room for another one",
            "unpin or delete some of them, or raise rewind-limit="),
    BLOCKER(NO_MEMORY,
            "the host has no memory for a copy of RAM",
            "give QEMU more memory"),
    BLOCKER(MEMORY_LOCKED,
            "memory is locked, so that a copy would take as much as RAM "
            "itself",
            "leave out -overcommit mem-lock=on (libvirt: <locked/>), which "
            "hugepages do not need to stay in memory"),
    BLOCKER(REWIND_OFF,
            "an object with rewind=off covers part of RAM",
            "set rewind=on for all objects"),
    BLOCKER(RAM_BLOCK,
            "RAM has a block that cannot be rewound",
            "use another memory backend for the block"),
    BLOCKER(EXTERNAL_WRITER,
            "another process or RAM block may write to the file of a RAM "
            "block",
            "use memory-backend-memfd, or memory-backend-file with a "
            "directory as mem-path="),
    BLOCKER(UNLOGGED_WRITER,
            "guest memory has an unlogged writer",
            "use a device that QEMU serves, or one that logs its writes"),
    BLOCKER(MEMORY_PINNED,
            "discarding RAM is disabled, a device has pinned it and may "
            "write to it without a log",
            "use an emulated or a virtio device in place of that device "
            "(VFIO, for one)"),
    BLOCKER(MAPPINGS_UNKNOWN,
            "devices have mapped memory that they do not unmap, more of it "
            "than can be noted",
            "set rewind=off, then rewind=on, and load a snapshot"),
    BLOCKER(VHOST_BUSY,
            "the back end of a vhost device has stopped without finishing "
            "its requests, and goes on writing to guest memory",
            "resume the guest, and load the snapshot when its disk answers"),
    BLOCKER(VHOST_LATE,
            "the first ram-reset object was added while the guest was "
            "stopped, and a vhost device may not have finished its requests "
            "then",
            "resume the guest, and load the snapshot"),
    BLOCKER(VHOST_LOST,
            "the back end of a vhost device is gone, its writes may not have "
            "been logged",
            "load or save the snapshot; its next load is a rewind"),
    BLOCKER(VHOST_CONNECTED,
            "the back end of a vhost device has been connected while the "
            "guest was stopped, and may have written to memory before it had "
            "a log",
            "resume the guest, and load the snapshot"),
    BLOCKER(VHOST_RESTARTED,
            "a vhost device has been connected, disconnected, started or "
            "stopped while the guest was running, and may have written to "
            "memory without a log",
            "load or save the snapshot; its next load is a rewind"),
    BLOCKER(VHOST_EARLY,
            "a vhost device was started with requests waiting for it, before "
            "it had a log",
            "load or save the snapshot; its next load is a rewind"),
    BLOCKER(VHOST_MAP_CHANGED,
            "the memory map has changed while a vhost device was running, "
            "and its log may not have been merged",
            "load or save the snapshot; its next load is a rewind"),
};

QEMU_BUILD_BUG_ON(ARRAY_SIZE(blockers) != RAM_RESET_BLOCKER__MAX);

const RamResetBlocker *ram_reset_blocker(RamResetBlockerId id)
{
    return &blockers[id];
}

RamResetBlocker *ram_reset_blocker_copy(const RamResetBlocker *b)
{
    return b ? QAPI_CLONE(RamResetBlocker, b) : NULL;
}

RamResetBlocker *ram_reset_blocker_new(RamResetBlockerId id, const char *detail)
{
    RamResetBlocker *b = ram_reset_blocker_copy(&blockers[id]);

    b->detail = g_strdup(detail);
    return b;
}

char *ram_reset_blocker_text(const RamResetBlocker *b)
{
    if (!b || !b->detail) {
        return b ? g_strdup(b->sentence) : NULL;
    }
    return g_strdup_printf("%s: %s", b->sentence, b->detail);
}
