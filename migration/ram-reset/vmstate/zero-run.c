/*
 * Loading runs of zero records at once
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "exec/target_page.h"
#include "block/block.h"
#include "system/ram-reset-compat.h"
#include "system/ram-reset-load.h"
#include "migration/migration.h"
#include "migration/qemu-file.h"
#include "migration/ram-reset.h"
#include "migration/ram-reset/vmstate/format.h"
#include "migration/ram-reset/vmstate/zero-run.h"

/*
 * An empty 8 GiB guest is two million records of 9 bytes.  Read one by one,
 * and from the disk by the 32 KiB that a QEMUFile has room for, they take
 * longer than anything else in a load.  We read a short run from the QEMUFile;
 * where one goes on, we read the VM state in large pieces past the QEMUFile,
 * and then set the QEMUFile to where the run has ended.
 */

/*
 * Reading in pieces discards what the QEMUFile has, and reads past the end of
 * the run, so the run has to be a long one: then we read no more than twice of
 * it.
 */
#define LONG_RUN (2 * RAM_STREAM_BUFFER / ZERO_RECORD)

/* How many bytes to ask for at once, so that short runs do not ask for much */
#define KNOWN_AHEAD (16 * MiB)

typedef struct ZeroRun {
    RAMBlock *rb;
    uint64_t next, known_end;   /* offsets in @rb */
    size_t page_size;
} ZeroRun;

static bool next_is_known(ZeroRun *run)
{
    if (run->next == run->known_end && run->next < run->rb->used_length) {
        run->known_end += ram_reset_known_run(run->rb, run->next, KNOWN_AHEAD);
    }
    return run->next < run->known_end && run->next < run->rb->used_length;
}

/* How many of @len bytes at @buf are records that continue the run */
static size_t take_records(ZeroRun *run, const uint8_t *buf, size_t len)
{
    size_t done = 0;

    while (len - done >= ZERO_RECORD &&
           ldq_be_p(buf + done) == (run->next | ZERO_RECORD_FLAGS) &&
           !buf[done + ZERO_RECORD - 1] && next_is_known(run)) {
        done += ZERO_RECORD;
        run->next += run->page_size;
    }
    return done;
}

/* Returns whether the run may go on */
static bool take_from_file(ZeroRun *run, QEMUFile *f)
{
    uint8_t *buf;
    unsigned i;

    /* RAM's section ends with more bytes than a record has: no end of file */
    for (i = 0; i < LONG_RUN; i++) {
        size_t len = qemu_peek_buffer(f, &buf, ZERO_RECORD, 0);

        if (!take_records(run, buf, len)) {
            return false;
        }
        qemu_file_skip(f, ZERO_RECORD);
    }
    return true;
}

/*
 * @pos: where the run goes on; @known: the first @len bytes that must be
 * there.  Returns where the run has ended, or -1 if it cannot be read.
 */
static int64_t take_pieces(ZeroRun *run, BlockDriverState *bs, int64_t pos,
                           const uint8_t *known, size_t len)
{
    g_autofree uint8_t *piece = g_malloc(ZERO_LAST_PIECE);
    size_t done, size;

    for (size = ZERO_FIRST_PIECE; ; size = MIN(size * 2, ZERO_LAST_PIECE)) {
        if (bdrv_load_vmstate(bs, piece, pos, size) < 0 ||
            memcmp(piece, known, len)) {
            return -1;
        }
        len = 0;
        done = take_records(run, piece, size);
        pos += done;
        if (size - done >= ZERO_RECORD) {
            return pos;
        }
    }
}

static void take_past_file(ZeroRun *run, QEMUFile *f, BlockDriverState *bs)
{
    size_t done, rest;
    uint8_t *buf;
    int64_t pos = -1;

    /* Of a full buffer it is known how much has been read and not used */
    if (qemu_peek_buffer(f, &buf, RAM_STREAM_BUFFER, 0) != RAM_STREAM_BUFFER) {
        return;
    }
    done = take_records(run, buf, RAM_STREAM_BUFFER);
    rest = RAM_STREAM_BUFFER - done;
    if (rest < ZERO_RECORD) {
        uint64_t here = run->next;

        /* The rest is part of the next address, which is nowhere else */
        pos = take_pieces(run, bs, qemu_get_offset(f) - rest, buf + done,
                          rest);
        if (pos < 0) {
            run->next = here;
        }
    }
    if (pos < 0) {
        qemu_file_skip(f, done);
    } else {
        qemu_set_offset(f, pos, SEEK_SET);
    }
}

void ram_reset_take_zeros(QEMUFile *f, BlockDriverState *bs, ram_addr_t addr)
{
    MigrationIncomingState *mis = migration_incoming_get_current();
    size_t page_size = qemu_target_page_size();
    uint64_t start = addr + page_size;
    ZeroRun run = {
        .rb = mis->last_recv_block[RAM_CHANNEL_PRECOPY],
        .next = start,
        .known_end = start,
        .page_size = page_size,
    };
    uint64_t pages;

    if (take_from_file(&run, f)) {
        take_past_file(&run, f, bs);
    }
    pages = (run.next - start) / page_size;
    if (pages) {
        ram_reset_pages_skipped(run.rb, pages);
        ramblock_recv_bitmap_set_range(run.rb, run.rb->host + start, pages);
    }
}

void ram_reset_do_load_page(RAMBlock *rb, ram_addr_t offset, int flags)
{
    RamResetPage what = RAM_RESET_PAGE_WRITE;

    if (flags & RAM_SAVE_FLAG_ZERO) {
        what = RAM_RESET_PAGE_ZERO;
    } else if (flags & RAM_SAVE_FLAG_XBZRLE) {
        what = RAM_RESET_PAGE_CHANGE;
    }
    ram_reset_page_loaded(rb, offset, what);
}
