/*
 * Loading RAM of a migration that comes in from a file
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/clone-visitor.h"
#include "qapi/error.h"
#include "qapi/qapi-visit-ram-reset.h"
#include "qemu/error-report.h"
#include "io/channel-file.h"
#include "system/ram-reset-compat.h"
#include "system/ram-reset-rewind.h"
#include "system/ram-reset-template.h"
#include "migration/migration.h"
#include "migration/options.h"
#include "migration/qemu-file.h"
#include "migration/ram-reset.h"
#include "migration/ram-reset/baseline.h"
#include "migration/ram-reset/incoming.h"
#include "migration/ram-reset/job-context.h"
#include "migration/ram-reset/vmstate/ram-sections.h"

/*
 * A change of a file shows in its change time, which has the resolution of the
 * kernel's tick, 10 ms at most.  So a file that has just been written may change
 * again without a trace.
 */
#define TICK_US (20 * 1000)

/* Protected by the BQL */
static struct {
    QEMUFile *f;                /* NULL unless RAM is being loaded */
    int fd;                     /* of @f, borrowed */
    char *path;
    bool mapped;                /* the file can be mapped */
    char *identity;             /* of a stream for which there are templates */
    RamSections sections;
    bool resetting;             /* ram_reset_begin() has been called */
    RamResetIncomingInfo *info;
} incoming;

/* A migration comes in by a coroutine, which must not change RAM blocks */
static void coroutine_mixed_fn
incoming_call(RamResetJobFunction *function, void *opaque)
{
    if (qemu_in_coroutine()) {
        ram_reset_job_call(function, opaque);
    } else {
        function(opaque);
    }
}

static void incoming_set_reason(const char *reason)
{
    g_free(incoming.info->reason);
    incoming.info->reason = g_strdup(reason);
}

/* Another description, with a position of its own; -1 with errno set */
static int incoming_reopen(void)
{
    g_autofree char *path = g_strdup_printf("/proc/self/fd/%d", incoming.fd);

    return open(path, O_RDONLY | O_CLOEXEC);
}

/* A text that is equal only if the file is the same, and has not changed */
static char *incoming_identity(bool *settled)
{
    int64_t now = g_get_real_time();
    struct stat st;

    if (fstat(incoming.fd, &st) < 0) {
        return NULL;
    }
    *settled = st.st_ctim.tv_sec * G_USEC_PER_SEC +
               st.st_ctim.tv_nsec / 1000 + TICK_US < now;
    return g_strdup_printf("migration file, device %" PRIx64 ", inode %" PRIu64
                           ", %" PRIu64 " bytes, modified %" PRId64 ".%09ld"
                           ", changed %" PRId64 ".%09ld, RAM at %" PRId64
                           "%s", (uint64_t)st.st_dev, (uint64_t)st.st_ino,
                           (uint64_t)st.st_size, (int64_t)st.st_mtim.tv_sec,
                           st.st_mtim.tv_nsec, (int64_t)st.st_ctim.tv_sec,
                           st.st_ctim.tv_nsec, incoming.sections.start,
                           migrate_ignore_shared() ? ", without shared RAM"
                                                   : "");
}

static bool incoming_read(void *opaque, uint8_t *buf, int64_t at, size_t len)
{
    return pread(incoming.fd, buf, len, at) == len;
}

static void incoming_end(void)
{
    g_clear_pointer(&incoming.path, g_free);
    g_clear_pointer(&incoming.identity, g_free);
    incoming.f = NULL;
}

static void incoming_open_mapped(void)
{
    int fd = incoming_reopen(), own_fd = incoming_reopen();
    Error *err = NULL;

    if (fd < 0 || own_fd < 0) {
        error_setg_errno(&err, errno, "it cannot be opened again");
        close(fd);
        close(own_fd);
    } else {
        incoming.mapped = ram_reset_migration_file_open(fd, own_fd, &err);
    }
    if (err) {
        incoming_set_reason(error_get_pretty(err));
        error_free(err);
    }
}

static void incoming_open_stream(void)
{
    bool settled;

    if (!ram_reset_templates_wanted()) {
        incoming_set_reason("its form is not that of mapped-ram, and no "
                            "ram-reset object has a template-dir");
    } else if (ram_reset_verify_wanted()) {
        incoming_set_reason("verify=on reads all of it");
    } else if (migrate_multifd() || incoming.sections.start < 0) {
        incoming_set_reason("RAM does not lie in one piece in it");
    } else {
        incoming.identity = incoming_identity(&settled);
        if (!settled) {
            incoming_set_reason("it has been written just now, and might "
                                "change unnoticed");
            g_clear_pointer(&incoming.identity, g_free);
        }
    }
}

/* @f is at its first RAM section */
static void incoming_begin(QEMUFile *f)
{
    QIOChannelFile *file = (QIOChannelFile *)object_dynamic_cast(
        OBJECT(qemu_file_get_ioc(f)), TYPE_QIO_CHANNEL_FILE);
    g_autofree char *link = NULL;
    struct stat st;

    incoming_end();
    if (!ram_reset_enabled()) {
        return;
    }
    qapi_free_RamResetIncomingInfo(incoming.info);
    incoming.info = g_new0(RamResetIncomingInfo, 1);
    if (!file || fstat(file->fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        incoming_set_reason("it comes in through a pipe or a socket");
        return;
    }
    link = g_strdup_printf("/proc/self/fd/%d", file->fd);
    incoming.f = f;
    incoming.fd = file->fd;
    incoming.path = g_file_read_link(link, NULL);
    incoming.mapped = incoming.resetting = false;
    incoming.sections = (RamSections) { 0 };
    ram_sections_enter(&incoming.sections, f, !migrate_mapped_ram());
    incoming.info->file = g_strdup(incoming.path);
    if (migrate_mapped_ram()) {
        incoming_open_mapped();
    } else {
        incoming_open_stream();
    }
}

/* Takes @reason over, which may be NULL */
static void incoming_note_block(const char *name, uint64_t pages, char *reason)
{
    RamResetIncomingBlock *b = g_new0(RamResetIncomingBlock, 1);

    b->name = g_strdup(name);
    b->mapped_pages = pages;
    b->reason = reason;
    QAPI_LIST_PREPEND(incoming.info->blocks, b);
}

typedef struct MapCall {
    RAMBlock *rb;
    ram_addr_t len;
    const unsigned long *stored;
    bool ok;
} MapCall;

static void incoming_map(void *opaque)
{
    MapCall *call = opaque;
    RAMBlock *rb = call->rb;
    Error *err = NULL;
    uint64_t pages;

    if (call->len != rb->used_length) {
        error_setg(&err, "it has another size in the file");
    } else {
        call->ok = ram_reset_migration_file_map(rb, rb->pages_offset,
                                                call->stored, &pages, &err);
    }
    incoming_note_block(rb->idstr, call->ok ? pages : 0,
                        err ? g_strdup(error_get_pretty(err)) : NULL);
    incoming.info->mapped |= call->ok;
    error_free(err);
}

bool ram_reset_map_incoming(QEMUFile *f, RAMBlock *rb, ram_addr_t len,
                            const unsigned long *stored)
{
    MapCall call = { .rb = rb, .len = len, .stored = stored };

    if (f == incoming.f && incoming.mapped) {
        incoming_call(incoming_map, &call);
    }
    return call.ok;
}

static void incoming_finish_reset(bool mapped)
{
    RamResetBlockInfoList *blocks;

    ram_reset_complete_zeroing();
    blocks = ram_reset_finish(true);
    for (RamResetBlockInfoList *l = blocks; l && mapped; l = l->next) {
        incoming_note_block(l->value->name, l->value->mapped_pages,
                            l->value->mapped_pages
                            ? NULL : g_strdup(l->value->reason));
        incoming.info->mapped |= l->value->mapped_pages;
    }
    qapi_free_RamResetBlockInfoList(blocks);
    incoming.resetting = false;
}

/* At the second section, the first one with pages */
static bool incoming_load_template(void)
{
    int64_t end;

    if (!ram_reset_template_find(incoming.identity, &end) ||
        !ram_sections_skip(&incoming.sections, end)) {
        return false;
    }
    incoming.resetting = true;
    if (!ram_reset_template_load()) {
        ram_sections_return(&incoming.sections);
        ram_reset_template_remove("it cannot be mapped");
        return false;
    }
    incoming_finish_reset(true);
    incoming.info->q_template = ram_reset_template_path();
    return true;
}

static void incoming_take_baseline(void)
{
    if (ram_reset_rewind_wanted() && ram_reset_has_template()) {
        ram_reset_baseline_of_incoming();
    }
}

/* @opaque: a bool, set if RAM has been loaded from the template */
static void incoming_enter_section(void *opaque)
{
    bool *skipped = opaque;

    ram_sections_enter(&incoming.sections, incoming.f, false);
    *skipped = incoming.sections.count == 2 && incoming_load_template();
    if (*skipped) {
        incoming_take_baseline();
        incoming_end();
    } else {
        ram_sections_note_start(&incoming.sections, incoming_read, NULL);
    }
}

bool ram_reset_incoming_skip(QEMUFile *f)
{
    bool skipped = false;

    if (f != incoming.f) {
        incoming_begin(f);
    } else if (incoming.identity) {
        incoming_call(incoming_enter_section, &skipped);
    }
    return skipped;
}

static void incoming_make_template(void)
{
    bool settled;
    g_autofree char *now = incoming_identity(&settled);

    if (incoming.sections.end <= 0) {
        incoming_set_reason("RAM does not lie in one piece in it");
    } else if (g_strcmp0(now, incoming.identity)) {
        incoming_set_reason("it has changed while it was read");
    } else {
        ram_reset_template_make(now, incoming.sections.end, true);
    }
}

/* @opaque: an int, 0 or -errno of the load of RAM */
static void incoming_complete(void *opaque)
{
    int ret = *(int *)opaque;
    Error *err = NULL;

    if (incoming.resetting) {
        incoming_finish_reset(false);
    }
    if (!ret && incoming.identity) {
        incoming_make_template();
    } else if (!ret && !ram_reset_migration_file_end(incoming.path, &err)) {
        /* QEMU does not report the error of a file */
        error_report_err(err);
        ret = -EINVAL;
        qemu_file_set_error(incoming.f, ret);
    }
    if (!ret) {
        incoming_take_baseline();
    }
    ram_reset_migration_file_close();
    incoming_end();
}

void ram_reset_incoming_ram_done(bool last, int ret)
{
    if (!incoming.f) {
        return;
    }
    if (incoming.identity) {
        ram_sections_note_end(&incoming.sections);
    }
    if (last || ret) {
        incoming_call(incoming_complete, &ret);
    }
}

RamResetIncomingInfo *ram_reset_query_incoming(void)
{
    return incoming.info ? QAPI_CLONE(RamResetIncomingInfo, incoming.info)
                         : NULL;
}
