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
 * The VM state of an empty 8 GiB guest has two million records of 9 bytes.  To
 * read them one by one, and from the disk in 32 KiB pieces as a QEMUFile does,
 * takes longer than the rest of a load.  This code reads a short run from the
 * QEMUFile.  It reads a long run in large pieces past the QEMUFile, and then
 * sets the QEMUFile to the end of the run.
 */

/*
 * Reading in pieces discards the buffer of the QEMUFile, and reads past the end
 * of the run.  With a run of this length, at most twice the run is read.
 */
#define LONG_RUN (2 * RAM_STREAM_BUFFER / ZERO_RECORD)

/* Bytes of RAM per query; a short run must not cost a query of all RAM */
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

/* Returns the number of bytes at @buf that are records of this run */
static size_t consume_records(ZeroRun *run, const uint8_t *buf, size_t len)
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

/* Returns false if the run has ended */
static bool consume_from_file(ZeroRun *run, QEMUFile *f)
{
    uint8_t *buf;
    unsigned i;

    /* The end of a RAM section is longer than a record: no read past the end */
    for (i = 0; i < LONG_RUN; i++) {
        size_t len = qemu_peek_buffer(f, &buf, ZERO_RECORD, 0);

        if (!consume_records(run, buf, len)) {
            return false;
        }
        qemu_file_skip(f, ZERO_RECORD);
    }
    return true;
}

/*
 * @pos is the position of the next record; its first @len bytes must be @known.
 * Returns the position of the end of the run, or -1 if it cannot be read.
 */
static int64_t consume_pieces(ZeroRun *run, BlockDriverState *bs, int64_t pos,
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
        done = consume_records(run, piece, size);
        pos += done;
        if (size - done >= ZERO_RECORD) {
            return pos;
        }
    }
}

static void consume_past_file(ZeroRun *run, QEMUFile *f, BlockDriverState *bs)
{
    size_t done, rest;
    uint8_t *buf;
    int64_t pos = -1;

    /* Only of a full buffer is the number of unused bytes known */
    if (qemu_peek_buffer(f, &buf, RAM_STREAM_BUFFER, 0) != RAM_STREAM_BUFFER) {
        return;
    }
    done = consume_records(run, buf, RAM_STREAM_BUFFER);
    rest = RAM_STREAM_BUFFER - done;
    if (rest < ZERO_RECORD) {
        uint64_t here = run->next;

        /* The rest is the first part of the next record */
        pos = consume_pieces(run, bs, qemu_get_offset(f) - rest, buf + done,
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

uint64_t ram_reset_consume_zeros(QEMUFile *f, BlockDriverState *bs,
                                 ram_addr_t addr)
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

    if (consume_from_file(&run, f)) {
        consume_past_file(&run, f, bs);
    }
    pages = (run.next - start) / page_size;
    if (pages) {
        ram_reset_pages_skipped(run.rb, pages);
        ramblock_recv_bitmap_set_range(run.rb, run.rb->host + start, pages);
    }
    return pages;
}
