/*
 * RAM reset: decide which RAM blocks may be reset, and which pages must stay
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "system/system.h"
#include "system/ram-reset/block/block.h"
#include "system/ram-reset/block/file-owner.h"
#include "system/ram-reset/block/listeners.h"

HostMemoryBackend *ram_reset_block_backend(RAMBlock *rb)
{
    Object *owner = memory_region_owner(rb->mr);

    return (HostMemoryBackend *)object_dynamic_cast(owner,
                                                    TYPE_MEMORY_BACKEND);
}

const char *ram_reset_block_memdev(RAMBlock *rb)
{
    HostMemoryBackend *backend = ram_reset_block_backend(rb);

    return backend ? object_get_canonical_path_component(OBJECT(backend))
                   : NULL;
}

bool ram_reset_block_is_rom(RAMBlock *rb)
{
    return rb->mr->readonly || rb->mr->rom_device;
}

const char *ram_reset_block_refusal(RAMBlock *rb)
{
    MemoryRegion *mr = rb->mr;

    if (ram_reset_block_is_rom(rb)) {
        return "read-only for the guest: the system reset and the snapshot "
               "write it";
    }
    if (memory_region_is_ram_device(mr)) {
        return "memory of a host device";
    }
    if (rb->flags & (RAM_READONLY | RAM_READONLY_FD)) {
        return "mapped from a file that is open for reading only";
    }
    if (rb->flags & RAM_PMEM) {
        return "persistent memory";
    }
    if (rb->guest_memfd >= 0) {
        return "private to a confidential guest (guest_memfd)";
    }
    return NULL;
}

PrimMap ram_reset_block_map(RAMBlock *rb)
{
    return (PrimMap) {
        .host = rb->host,
        .len = rb->used_length,
        .page_size = rb->page_size,
        .fd = rb->fd,
        .fd_offset = rb->fd_offset,
        .shared = qemu_ram_is_shared(rb),
        .noreserve = qemu_ram_is_noreserve(rb),
    };
}

/* Whether another block maps @rb's file, and @matters returns true for it */
static bool file_is_mapped_elsewhere(RAMBlock *rb,
                                     bool (*matters)(RAMBlock *other))
{
    struct stat ours, theirs;
    RAMBlock *other;

    if (rb->fd < 0) {
        return false;
    }
    if (fstat(rb->fd, &ours) < 0) {
        return true;
    }
    RCU_READ_LOCK_GUARD();
    RAMBLOCK_FOREACH(other) {
        if (other != rb && other->fd >= 0 && matters(other) &&
            (fstat(other->fd, &theirs) < 0 ||
             (ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino))) {
            return true;
        }
    }
    return false;
}

static bool is_shared(RAMBlock *rb)
{
    return qemu_ram_is_shared(rb);
}

bool ram_reset_block_is_aliased(RAMBlock *rb)
{
    return !is_shared(rb) && file_is_mapped_elsewhere(rb, is_shared);
}

const char *ram_reset_block_pin_reason(const RamResetBlock *blk)
{
    if (blk->rb->flags & RAM_PREALLOC) {
        return "memory that QEMU did not map itself";
    }
    if (ram_block_discard_is_disabled()) {
        return "discarding RAM is disabled, a device has pinned it";
    }
    if (should_mlock(mlock_state)) {
        return "memory is locked (-overcommit mem-lock)";
    }
    return NULL;
}

bool ram_reset_block_is_preallocated(const RamResetBlock *blk)
{
    HostMemoryBackend *backend = ram_reset_block_backend(blk->rb);

    return backend && backend->prealloc;
}

/* @opaque: a memory backend */
static int backend_preallocates(Object *obj, void *opaque)
{
    return object_dynamic_cast(obj, "virtio-mem") &&
           object_property_get_link(obj, "memdev", NULL) == opaque &&
           object_property_get_bool(obj, "prealloc", NULL);
}

bool ram_reset_block_has_preallocated_parts(const RamResetBlock *blk)
{
    HostMemoryBackend *backend = ram_reset_block_backend(blk->rb);

    /* The manager is a device with plugged parts, or a part of it */
    return memory_region_has_ram_discard_manager(blk->rb->mr) &&
           object_child_foreach_recursive(OBJECT(current_machine),
                                          backend_preallocates, backend);
}

static bool any_block(RAMBlock *rb)
{
    return true;
}

char *ram_reset_block_external_user(const RamResetBlock *blk)
{
    const char *listener = ram_reset_memory_listener();

    if (listener) {
        return g_strdup_printf("%s holds guest memory and would go on with "
                               "the old one", listener);
    }
    return ram_reset_block_external_writer(blk);
}

char *ram_reset_block_external_writer(const RamResetBlock *blk)
{
    bool locked = blk->owner && RAM_RESET_GET_CLASS(blk->owner)->locks_file;
    Object *backend = OBJECT(ram_reset_block_backend(blk->rb));
    const char *shared =
        locked ? NULL : ram_reset_file_refusal(backend, blk->rb->fd);

    if (shared) {
        return g_strdup(shared);
    }
    if (file_is_mapped_elsewhere(blk->rb, any_block)) {
        return g_strdup("another RAM block maps the same file");
    }
    return NULL;
}

bool ram_reset_check_memdev(const char *memdev, Error **errp)
{
    ERRP_GUARD();
    Object *obj = object_resolve_path_component(object_get_objects_root(),
                                                memdev);
    HostMemoryBackend *backend;

    backend = (HostMemoryBackend *)object_dynamic_cast(obj,
                                                       TYPE_MEMORY_BACKEND);
    if (!backend) {
        error_setg(errp, obj ? "memdev '%s' is not a memory backend"
                             : "memdev '%s' does not exist", memdev);
        error_append_hint(errp, "Give the id of a memory-backend-* object "
                          "that the machine uses as RAM.\n");
        return false;
    }
    if (!host_memory_backend_is_mapped(backend)) {
        error_setg(errp, "memdev '%s' is not used as guest RAM", memdev);
        error_append_hint(errp, "Use it with -machine memory-backend=%s, "
                          "-numa node,memdev=%s or a memory device.\n",
                          memdev, memdev);
        return false;
    }
    return true;
}
