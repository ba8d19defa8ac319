/*
 * Templates: fill RAM from a template
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/main-loop.h"
#include "qemu/timer.h"
#include "system/ram-reset/block-list.h"
#include "system/ram-reset/block/copy.h"
#include "system/ram-reset/block/find-data.h"
#include "system/ram-reset/block/overlay.h"
#include "system/ram-reset/block/threads.h"
#include "system/ram-reset/options.h"
#include "system/ram-reset/prim/ranges.h"
#include "system/ram-reset/reset.h"
#include "system/ram-reset/template/store.h"

/* Bytes that one of several threads copies at once */
#define COPY_AT_ONCE    (512 * KiB)
/*
 * A block of at most this size, in bytes, is compared as a whole: nothing is
 * faster
 */
#define SMALL           (1 * MiB)
/* Bytes that are worth a thread */
#define BYTES_A_THREAD  (4 * MiB)

typedef struct CopyJob {
    const uint8_t *from;
    const PrimMap *to;
    bool by_file;
    GArray *pieces;             /* array of PrimRange */
    unsigned next;              /* atomic: first piece not started */
} CopyJob;

/* A block and its result */
typedef struct Done {
    RAMBlock *rb;
    RamResetBlockInfo *info;
    Error *refusal;             /* why it is not mapped */
    int ret;                    /* -errno if mapping has failed */
} Done;

/* @done: array of Done */
typedef struct Load {
    const TemplateFile *file;
    GArray *done;
} Load;

static Done *template_find_done(const Load *load, RAMBlock *rb)
{
    for (unsigned i = 0; i < load->done->len; i++) {
        Done *done = &g_array_index(load->done, Done, i);

        if (done->rb == rb) {
            return done;
        }
    }
    return NULL;
}

static bool is_small(RAMBlock *rb)
{
    return rb->used_length <= SMALL;
}

/* Whether @rb is not made zero: it is mapped, or compared */
static bool is_left_out(const RamResetBlock *blk, void *opaque)
{
    Done *done = template_find_done(opaque, blk->rb);

    return blk->ignored || is_small(blk->rb) || (done && done->info);
}

static RamResetOverlay overlay_of(const TemplateFile *f, int nr)
{
    const TemplateBlock *b = &g_array_index(f->blocks, TemplateBlock, nr);

    return (RamResetOverlay) {
        .fd = f->fd, .offset = b->offset, .page_size = f->page_size,
        .runs = b->runs,
    };
}

static void map_blocks(Load *load)
{
    g_autoptr(RamResetBlockList) list = ram_reset_list_blocks();
    const TemplateFile *f = load->file;

    for (unsigned i = 0; i < list->nr; i++) {
        RamResetBlock *blk = &list->blocks[i];
        Done done = { .rb = blk->rb };
        int64_t before = get_clock();
        RamResetOverlay from;

        if (!blk->map.len || is_small(blk->rb) || blk->ignored) {
            continue;
        }
        from = overlay_of(f, template_file_find_block(f, blk->rb->idstr));
        if (ram_reset_map_is_allowed(blk, &from, &done.refusal)) {
            done.ret = ram_reset_map(blk, &from);
        }
        if (!done.refusal && !done.ret) {
            done.info = g_new0(RamResetBlockInfo, 1);
            done.info->system_calls = blk->info->system_calls;
            done.info->reset_ns = get_clock() - before;
        } else if (!done.refusal) {
            error_setg(&done.refusal, "the host refused to map it");
        }
        g_array_append_val(load->done, done);
    }
}

static void copy_piece(const CopyJob *job, const PrimRange *piece)
{
    const uint8_t *from = job->from + piece->start;
    uint64_t done = 0;
    PrimLimit limit;

    prim_limit_begin(&limit);
    if (job->by_file) {
        done = prim_write_all(job->to->fd, from, piece->len,
                              job->to->fd_offset + piece->start);
    }
    prim_limit_end(&limit);
    memcpy(job->to->host + piece->start + done, from + done,
           piece->len - done);
}

static void *copy_worker(void *opaque)
{
    CopyJob *job = opaque;
    unsigned i;

    while ((i = qatomic_fetch_inc(&job->next)) < job->pieces->len) {
        copy_piece(job, &g_array_index(job->pieces, PrimRange, i));
    }
    return NULL;
}

static GArray *cut_runs(const GArray *runs)
{
    GArray *pieces = prim_ranges_new();

    for (unsigned i = 0; i < runs->len; i++) {
        PrimRange run = g_array_index(runs, PrimRange, i), piece;

        for (; run.len; run.start += piece.len, run.len -= piece.len) {
            piece = (PrimRange) { run.start, MIN(run.len, COPY_AT_ONCE) };
            g_array_append_val(pieces, piece);
        }
    }
    return pieces;
}

/* Pages that are not copied will be zero, as far as that is known */
static void template_expect(RamResetBlock *blk, const GArray *runs)
{
    size_t page = qemu_target_page_size();

    for (unsigned i = 0; i < runs->len; i++) {
        PrimRange run = g_array_index(runs, PrimRange, i);

        for (; run.len; run.start += page, run.len -= page) {
            ram_reset_page_loaded(blk->rb, run.start, RAM_RESET_PAGE_WRITE);
        }
    }
    blk->info->skipped_pages = blk->map.len / page - blk->info->copied_pages;
}

/*
 * Writing to a file populates it faster than faults do, though only one thread
 * can write at a time.  Several threads copy best to pages that are populated.
 */
static bool is_better_written(const RamResetBlock *blk, uint64_t bytes)
{
    struct stat st;

    return blk->backing == PRIM_SHARED_FILE &&
           blk->map.page_size == qemu_real_host_page_size() &&
           fstat(blk->map.fd, &st) == 0 &&
           (uint64_t)st.st_blocks * 512 < bytes / 2;
}

static void template_copy(RamResetBlock *blk, const RamCopy *t,
                          const GArray *runs)
{
    g_autoptr(GArray) pieces = cut_runs(runs);
    uint64_t bytes = prim_ranges_size(runs);
    CopyJob job = {
        .from = ram_copy_bytes(t), .to = &blk->map, .pieces = pieces,
        .by_file = is_better_written(blk, bytes),
    };

    ram_reset_in_threads(MIN(ram_reset_threads(blk->owner),
                             DIV_ROUND_UP(bytes, BYTES_A_THREAD)),
                         copy_worker, &job);
}

/* Any page may differ in a block that is not made zero */
static void template_compare(RamResetBlock *blk, RamCopy *t)
{
    RamCopyCounts counts = { 0 };
    bool all = ram_reset_block_is_rom(blk->rb) || is_small(blk->rb);
    g_autofree unsigned long *present =
        all ? NULL : ram_reset_find_present(blk);

    ram_copy_compare(t, blk->map.host, present, NULL, 0, ram_copy_words(t),
                     NULL, &counts);
    memory_region_set_dirty(blk->rb->mr, 0, blk->map.len);
    blk->info->copied_pages = counts.copied;
    blk->info->cleared_pages = counts.cleared;
}

static void template_describe(RamResetBlock *blk, char *reason)
{
    g_free(blk->info->reason);
    blk->info->reason = reason;
}

static void describe_mapped(RamResetBlock *blk, const Done *done,
                            const GArray *runs)
{
    size_t page = qemu_target_page_size();

    memory_region_set_dirty(blk->rb->mr, 0, blk->map.len);
    blk->info->strategy = g_strdup("template");
    blk->info->system_calls = done->info->system_calls;
    blk->info->reset_ns = done->info->reset_ns;
    blk->info->mapped_pages = prim_ranges_size(runs) / page;
    blk->info->skipped_pages = blk->map.len / page - blk->info->mapped_pages;
    template_describe(blk, g_strdup("the template is mapped, pages are copied "
                                    "when they are written to"));
}

/* False if the template cannot be read */
static bool load_block(const Load *load, RamResetBlock *blk)
{
    const TemplateFile *f = load->file;
    int nr = template_file_find_block(f, blk->rb->idstr);
    Done *done = template_find_done(load, blk->rb);
    const GArray *runs;
    RamCopy *t;

    assert(nr >= 0);
    runs = g_array_index(f->blocks, TemplateBlock, nr).runs;
    if (done && done->info) {
        describe_mapped(blk, done, runs);
        return true;
    }
    t = template_file_copy(f, nr);
    if (!t) {
        return false;
    }
    if (blk->owner) {
        template_copy(blk, t, runs);
        if (done->ret < 0) {
            ram_reset_note_fallback(blk, "template", done->ret);
        }
        template_describe(blk, g_strdup_printf(
            "%s; copied from the template, which is not mapped: %s",
            blk->info->reason, error_get_pretty(done->refusal)));
    } else {
        template_compare(blk, t);
        template_describe(blk, g_strdup("all of it is compared with the "
                                        "template"));
    }
    ram_copy_free(t);
    return true;
}

static bool load_blocks(const Load *load)
{
    const TemplateFile *f = load->file;
    g_autoptr(RamResetBlockList) list = ram_reset_list_blocks();

    for (unsigned i = 0; i < list->nr; i++) {
        RamResetBlock *blk = &list->blocks[i];

        if (blk->owner && blk->map.len) {
            int nr = template_file_find_block(f, blk->rb->idstr);

            template_expect(blk,
                            g_array_index(f->blocks, TemplateBlock, nr).runs);
        }
    }
    ram_reset_complete_zeroing();
    for (unsigned i = 0; i < list->nr; i++) {
        RamResetBlock *blk = &list->blocks[i];

        if (blk->map.len && !blk->ignored && !load_block(load, blk)) {
            return false;
        }
    }
    return true;
}

static void clear_done(void *opaque)
{
    Done *done = opaque;

    qapi_free_RamResetBlockInfo(done->info);
    error_free(done->refusal);
}

bool ram_reset_template_load(void)
{
    Load load = { .file = ram_reset_template() };
    bool ok;

    assert(bql_locked() && load.file);
    load.done = g_array_new(false, true, sizeof(Done));
    g_array_set_clear_func(load.done, clear_done);
    map_blocks(&load);
    ram_reset_begin_without(is_left_out, &load, true,
                            template_file_content(load.file));
    ok = load_blocks(&load);
    g_array_unref(load.done);
    return ok;
}
