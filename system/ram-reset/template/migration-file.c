/*
 * Templates: map RAM from the file of a migration
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/bitmap.h"
#include "qemu/cutils.h"
#include "qemu/error-report.h"
#include "qemu/main-loop.h"
#include "system/ram-reset-compat.h"
#include "system/ram-reset-template.h"
#include "system/cpu-timers.h"
#include "system/cpus.h"
#include "system/runstate.h"
#include "block/block.h"
#include "system/ram-reset/block-list.h"
#include "system/ram-reset/block/file-lease.h"
#include "system/ram-reset/block/overlay-map.h"
#include "system/ram-reset/block/overlay.h"
#include "system/ram-reset/prim/prim.h"
#include "system/ram-reset/prim/ranges.h"
#include "system/ram-reset/prim/trusted-file.h"
#include "system/ram-reset/template/file-internal.h"
#include "system/ram-reset/template/refusal.h"
#include "system/ram-reset/template/store.h"
#include "system/ram-reset/trace.h"

/*
 * If there are too many runs, a mapping has the pages between some, too.  The
 * guest then takes these zeros from the file, which costs page cache.
 */
#define FIRST_GAP  2            /* pages */
#define MOST_TIMES 4            /* the bytes that are stored */

/* BQL held; NULL outside a migration whose file can be mapped */
static TemplateFile *migration_file;
/* It has changed, or a file of an earlier migration has */
static bool migration_file_broken;

/* @stored: the pages that the file has, in bytes of the block */
typedef struct MapFile {
    RamResetBlock *blk;
    RamResetOverlay from;
    const GArray *stored;
} MapFile;

static GArray *stored_ranges(const unsigned long *stored, uint64_t nr,
                             size_t page)
{
    GArray *ranges = prim_ranges_new();
    uint64_t start, end;

    for (start = find_first_bit(stored, nr); start < nr;
         start = find_next_bit(stored, nr, end)) {
        end = find_next_zero_bit(stored, nr, start);
        prim_ranges_add(ranges, start * page, end * page, 0);
    }
    return ranges;
}

/*
 * Nobody writes to memory while it is copied.  The run state does not change: a
 * migration may change it itself as soon as pausing releases the BQL.
 */
static int file_copy_paused(int fd)
{
    int ret;

    if (runstate_is_running()) {
        cpu_disable_ticks();
        pause_all_vcpus();
        vm_state_notify(false, RUN_STATE_SAVE_VM);
    }
    bdrv_drain_all_begin();
    ret = file_lease_copy(fd);
    bdrv_drain_all_end();
    if (runstate_is_running()) {
        cpu_enable_ticks();
        vm_state_notify(true, RUN_STATE_RUNNING);
        resume_all_vcpus();
    }
    return ret;
}

static void file_broken(int fd)
{
    const TemplateFile *f = ram_reset_template();
    int64_t bytes = file_lease_mapped(fd);
    int ret = 0;

    migration_file_broken = true;
    if (bytes) {
        ret = bytes < 0 ? bytes
              : ram_block_discard_is_disabled() ? -EBUSY : file_copy_paused(fd);
    }
    if (ret < 0) {
        error_report("RAM is mapped from the file of a migration, which "
                     "changes, and QEMU has not copied it: %s",
                     ret == -EBUSY ? "a device has pinned it"
                     : ret == -ESTALE ? "QEMU was too late" : strerror(-ret));
        exit(EXIT_FAILURE);
    }
    ram_reset_map_ended(fd);
    if (f && prim_is_same_file(f->fd, fd)) {
        ram_reset_template_close();
    }
    trace_ram_reset_migration_file_copied(bytes);
}

static bool file_take_lease(int fd, Error **errp)
{
    int ret = file_lease_take(fd, file_broken);

    if (ret == -EAGAIN) {
        error_setg(errp, "a process has it open for writing");
    } else if (ret < 0) {
        error_setg(errp, "QEMU would not learn of a change to it (%s)",
                   strerror(-ret));
    }
    return ret == 0;
}

/* A user who can write to the file controls the guest, as with a template */
static bool file_is_trusted(int fd, Error **errp)
{
    g_autofree char *refusal =
        trusted_file_fd_refusal(fd, TRUST_ROOT | TRUST_READERS | TRUST_LINKS);

    if (refusal) {
        error_setg(errp, "%s", refusal);
        return false;
    }
    return template_host_is_able(errp);
}

/* The file may have an older content there, since the page is zero now */
static void clear_pages(const MapFile *m, uint64_t start, uint64_t end)
{
    uint8_t *host = m->blk->map.host;

    for (; start < end; start += m->from.page_size) {
        if (!buffer_is_zero(host + start, m->from.page_size)) {
            memset(host + start, 0, m->from.page_size);
        }
    }
}

static void clear_gap(const MapFile *m, uint64_t start, uint64_t end)
{
    uint64_t page = m->from.page_size;

    while (start < end) {
        off_t data = lseek(m->from.fd, m->from.offset + start, SEEK_DATA);
        off_t hole = data < 0 ? -1 : lseek(m->from.fd, data, SEEK_HOLE);

        if (data < 0 && errno == ENXIO) {
            return;
        }
        if (hole < 0) {
            clear_pages(m, start, end);
            return;
        }
        data -= m->from.offset;
        if (data < end) {
            clear_pages(m, QEMU_ALIGN_DOWN(data, page),
                        MIN(end, QEMU_ALIGN_UP(hole - m->from.offset, page)));
        }
        start = MIN(end, hole - m->from.offset);
        start = QEMU_ALIGN_UP(start, page);
    }
}

/* Runs have pages that are not stored, if they have been joined */
static void clear_gaps(const MapFile *m)
{
    unsigned next = 0;

    for (unsigned i = 0; i < m->from.runs->len; i++) {
        PrimRange run = g_array_index(m->from.runs, PrimRange, i);
        uint64_t at = run.start;

        for (; at < run.start + run.len; next++) {
            PrimRange stored = g_array_index(m->stored, PrimRange, next);

            clear_gap(m, at, stored.start);
            at = stored.start + stored.len;
        }
    }
}

static bool block_fits(const MapFile *m, uint64_t len, Error **errp)
{
    const TemplateFile *f = migration_file;
    uint64_t end = f->blocks->len
                   ? template_file_block(f, f->blocks->len - 1)->offset +
                     template_file_block(f, f->blocks->len - 1)->len
                   : 0;

    if (m->from.offset % qemu_real_host_page_size()) {
        error_setg(errp, "its pages do not begin at a page of the host");
    } else if (m->from.offset < end || m->from.offset > f->size ||
               len > f->size - m->from.offset) {
        error_setg(errp, "it is cut short");
    } else {
        return true;
    }
    return false;
}

static bool block_is_able(const MapFile *m, Error **errp)
{
    if (!m->blk || !m->blk->map.len) {
        error_setg(errp, "no ram-reset object covers it");
        return false;
    }
    if (memory_region_has_ram_discard_manager(m->blk->rb->mr)) {
        error_setg(errp, "parts of it are unplugged (virtio-mem)");
        return false;
    }
    return ram_reset_map_is_allowed(m->blk, &m->from, errp);
}

static bool block_map(const MapFile *m, Error **errp)
{
    RamResetBlock *blk = m->blk;
    int ret;

    if (!block_is_able(m, errp)) {
        return false;
    }
    ret = ram_reset_map(blk, &m->from);
    if (!ret) {
        clear_gaps(m);
        return true;
    }
    ram_reset_unmap(blk);
    if (overlay_map_has(blk->rb->host, blk->rb)) {
        memset(blk->rb->host, 0, blk->rb->used_length);
    }
    error_setg_errno(errp, -ret, "the host refused to map it");
    return false;
}

/* The file has these pages of @rb, whether they are mapped or read */
static void note_block(RAMBlock *rb, uint64_t offset, GArray *stored)
{
    TemplateBlock b = {
        .name = g_strdup(rb->idstr), .len = rb->used_length, .offset = offset,
        .runs = g_array_ref(stored),
    };

    g_array_append_val(migration_file->blocks, b);
}

bool ram_reset_migration_file_open(int fd, int own_fd, Error **errp)
{
    struct stat st;

    assert(bql_locked());
    ram_reset_migration_file_close();
    migration_file_broken = false;
    if (!file_is_trusted(fd, errp) || !file_take_lease(own_fd, errp)) {
        close(fd);
        close(own_fd);
        return false;
    }
    /* The lease keeps the size what it is */
    if (fstat(fd, &st) < 0) {
        error_setg_errno(errp, errno, "its size is unknown");
        close(fd);
        return false;
    }
    migration_file = template_file_new("", 0, qemu_target_page_size());
    migration_file->fd = fd;
    migration_file->size = st.st_size;
    return true;
}

bool ram_reset_migration_file_map(RAMBlock *rb, uint64_t offset,
                                  const unsigned long *stored,
                                  uint64_t *pages, Error **errp)
{
    size_t page = qemu_target_page_size();
    g_autoptr(RamResetBlockList) list = ram_reset_list_blocks();
    g_autoptr(GArray) ranges = NULL, runs = NULL;
    MapFile m = { .from = { .offset = offset, .page_size = page } };

    assert(bql_locked() && migration_file);
    if (migration_file_broken) {
        error_setg(errp, "the file changes");
        return false;
    }
    if (!template_has_block(rb)) {
        error_setg(errp, "the file has none of it");
        return false;
    }
    if (!block_fits(&m, rb->used_length, errp)) {
        return false;
    }
    for (unsigned i = 0; i < list->nr; i++) {
        if (list->blocks[i].rb == rb) {
            m.blk = &list->blocks[i];
        }
    }
    ranges = stored_ranges(stored, rb->used_length / page, page);
    note_block(rb, offset, ranges);
    runs = prim_ranges_join(g_array_copy(ranges), OVERLAY_MAP_MAX,
                            FIRST_GAP * page, MOST_TIMES);
    m.stored = ranges;
    m.from.fd = migration_file->fd;
    m.from.runs = runs;
    *pages = prim_ranges_size(ranges) / page;
    return block_map(&m, errp);
}

/* @list has all blocks of the file */
static bool file_verify_block(const TemplateFile *f, unsigned nr,
                              const RamResetBlockList *list, Error **errp)
{
    const TemplateBlock *b = template_file_block(f, nr);
    RamCopyCounts counts = { 0 };
    RamCopy *copy = template_file_copy(f, nr);

    if (!copy) {
        error_setg_errno(errp, errno, "RAM cannot be verified");
        return false;
    }
    for (unsigned i = 0; i < list->nr; i++) {
        RamResetBlock *blk = &list->blocks[i];

        if (!strcmp(blk->rb->idstr, b->name)) {
            ram_copy_compare(copy, blk->map.host, NULL, NULL, 0,
                             ram_copy_words(copy), NULL, &counts);
        }
    }
    ram_copy_free(copy);
    if (counts.dirty) {
        error_setg(errp, "RAM block '%s' differs from the file of the "
                   "migration in %" PRIu64 " pages", b->name, counts.dirty);
    }
    return !counts.dirty;
}

static bool file_verify(const TemplateFile *f, Error **errp)
{
    g_autoptr(RamResetBlockList) list = ram_reset_list_blocks();

    for (unsigned i = 0; i < f->blocks->len; i++) {
        if (!file_verify_block(f, i, list, errp)) {
            return false;
        }
    }
    return true;
}

void ram_reset_migration_file_give_back(const char *path)
{
    int fd = open(path, O_PATH | O_CLOEXEC);

    if (fd >= 0) {
        file_lease_give_back(fd);
        close(fd);
    }
}

bool ram_reset_migration_file_end(const char *path, Error **errp)
{
    TemplateFile *f = g_steal_pointer(&migration_file);
    bool ok = true;

    if (!f) {
        return true;
    }
    if (migration_file_broken) {
        error_setg(errp, "The file of the migration has changed while RAM was "
                   "loaded");
        ok = false;
    } else if (ram_reset_verify_wanted()) {
        ok = template_fits(f, errp) && file_verify(f, errp);
    }
    if (ok && template_fits(f, NULL)) {
        ram_reset_template_set(f, path);
    } else {
        template_file_free(f);
    }
    return ok;
}

void ram_reset_migration_file_close(void)
{
    g_clear_pointer(&migration_file, template_file_free);
}
