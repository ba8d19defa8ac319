/*
 * Templates: write a file with a snapshot's RAM
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset/template/file-internal.h"
#include "system/ram-reset/prim/prim.h"
#include "system/ram-reset/prim/trusted-file.h"
#include <sys/resource.h>

/* @window: the whole file, mapped, on hugetlbfs, which has no write() */
typedef struct Output {
    int fd;
    uint8_t *window;
    uint64_t unit;
} Output;

static bool template_put(const Output *out, const void *data, uint64_t len,
                         uint64_t offset)
{
    if (out->window) {
        uint64_t first = offset / out->unit * out->unit;

        if (fallocate(out->fd, 0, first,
                      QEMU_ALIGN_UP(offset + len, out->unit) - first) < 0) {
            return false;
        }
        memcpy(out->window + offset, data, len);
        return true;
    }
    return prim_write_all(out->fd, data, len, offset) == len;
}

static bool put_index(const TemplateFile *f, const Output *out)
{
    g_autoptr(GVariant) index = template_file_pack(f);
    TemplateHead head = {
        .magic = TEMPLATE_FILE_MAGIC, .index_len = g_variant_get_size(index),
    };
    const void *data = g_variant_get_data(index);

    if (head.index_len > TEMPLATE_FILE_MAX_INDEX) {
        errno = EFBIG;
        return false;
    }
    template_file_checksum(data, head.index_len, head.checksum);
    return template_put(out, data, head.index_len, sizeof(head)) &&
           template_put(out, &head, sizeof(head), 0);
}

static bool put_blocks(const TemplateFile *f, const Output *out,
                       uint8_t *const hosts[])
{
    for (unsigned i = 0; i < f->blocks->len; i++) {
        TemplateBlock *b = template_file_block(f, i);

        for (unsigned j = 0; j < b->runs->len; j++) {
            PrimRange run = g_array_index(b->runs, PrimRange, j);

            if (!template_put(out, hosts[i] + run.start, run.len,
                              b->offset + run.start)) {
                return false;
            }
        }
    }
    return true;
}

/* The length of the index does not depend on its numbers */
static void lay_out(TemplateFile *f, uint64_t unit)
{
    g_autoptr(GVariant) index = template_file_pack(f);
    uint64_t at = sizeof(TemplateHead) + g_variant_get_size(index);

    for (unsigned i = 0; i < f->blocks->len; i++) {
        TemplateBlock *b = template_file_block(f, i);

        at = QEMU_ALIGN_UP(at, unit);
        b->offset = at;
        at += b->len;
    }
    f->size = QEMU_ALIGN_UP(at, unit);
}

/*
 * Set a time that has passed, so that any later change sets another one; and in
 * full seconds, which all file systems can store.
 */
static bool template_finish(TemplateFile *f, const Output *out)
{
    struct timespec times[2] = { { .tv_nsec = UTIME_NOW },
                                 { .tv_sec = f->modified } };

    return futimens(out->fd, times) == 0 && fsync(out->fd) == 0;
}

static bool write_file(TemplateFile *f, Output *out, uint8_t *const hosts[])
{
    struct statfs fs;
    bool ok;

    if (fstatfs(out->fd, &fs) < 0) {
        return false;
    }
    out->unit = MAX(TEMPLATE_FILE_ALIGN, (uint64_t)fs.f_bsize);
    f->modified = time(NULL) - 1;
    lay_out(f, out->unit);
    if (ftruncate(out->fd, f->size) < 0) {
        return false;
    }
    if (prim_is_on_hugetlbfs(out->fd)) {
        out->unit = fs.f_bsize;
        out->window = mmap(NULL, f->size, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_NORESERVE, out->fd, 0);
        if (out->window == MAP_FAILED) {
            return false;
        }
    }
    ok = put_index(f, out) && put_blocks(f, out, hosts);
    if (out->window) {
        int err = errno;

        munmap(out->window, f->size);
        errno = err;
    }
    return ok && template_finish(f, out);
}

/* Open a locked, empty file of that name; -1 with @errp set on failure */
static int open_unfinished(int dir, const char *name, Error **errp)
{
    int fd = trusted_file_open(dir, name, O_RDWR | O_CREAT);
    g_autofree char *refusal = NULL;
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0) {
        error_setg(errp, "%s", trusted_file_open_error(errno));
        goto fail;
    }
    refusal = trusted_file_refusal(&st, 0);
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        error_setg(errp, "%s", errno == EWOULDBLOCK
                               ? "another process is making it"
                               : strerror(errno));
    } else if (!template_file_is_called(dir, name, fd)) {
        error_setg(errp, "another process has just made it");
    } else if (refusal) {
        error_setg(errp, "%s", refusal);
    } else if (ftruncate(fd, 0) < 0) {
        error_setg(errp, "%s", strerror(errno));
    } else {
        return fd;
    }

fail:
    if (fd >= 0) {
        close(fd);
    }
    return -1;
}

/* Whether another process has made the file meanwhile */
static bool is_there(int dir, const TemplateFile *f)
{
    TemplateFile *other;
    bool same;

    template_file_open(dir, f->identity, &other, NULL);
    same = other && other->note == f->note &&
           other->blocks->len == f->blocks->len;
    for (unsigned i = 0; same && i < f->blocks->len; i++) {
        TemplateBlock *a = template_file_block(f, i);
        TemplateBlock *b = template_file_block(other, i);

        same = !strcmp(a->name, b->name) && a->len == b->len;
    }
    template_file_free(other);
    return same;
}

/* Set @errp for errno */
static void set_write_error(const TemplateFile *f, Error **errp)
{
    int err = errno;
    struct rlimit most;

    if (err == EFBIG && getrlimit(RLIMIT_FSIZE, &most) == 0 &&
        f->size > most.rlim_cur) {
        error_setg(errp, "it takes %" G_GUINT64_FORMAT " MiB, holes included, "
                   "and files of this process may have %" G_GUINT64_FORMAT
                   " MiB (RLIMIT_FSIZE, ulimit -f)", f->size >> 20,
                   (uint64_t)most.rlim_cur >> 20);
    } else {
        error_setg(errp, "%s", strerror(err));
    }
}

bool template_file_write(TemplateFile *f, int dir, uint8_t *const hosts[],
                         Error **errp)
{
    g_autofree char *name = template_file_name(f->identity);
    g_autofree char *unfinished = template_file_unfinished_name(f->identity);
    Output out = { 0 };
    PrimLimit limit;
    bool ok = true;

    out.fd = open_unfinished(dir, unfinished, errp);
    if (out.fd < 0) {
        return false;
    }
    prim_limit_begin(&limit);
    if (is_there(dir, f)) {
        unlinkat(dir, unfinished, 0);
    } else if (!write_file(f, &out, hosts) ||
               renameat(dir, unfinished, dir, name) < 0) {
        set_write_error(f, errp);
        unlinkat(dir, unfinished, 0);
        ok = false;
    }
    prim_limit_end(&limit);
    close(out.fd);
    return ok;
}
