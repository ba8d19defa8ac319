/*
 * A snapshot's RAM in a file, for those who load it later
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifdef RAM_RESET_STANDALONE
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#else
#include "qemu/osdep.h"
#include <sys/file.h>
#include <sys/mman.h>
#endif
#include <sys/vfs.h>
#include "templatefile.h"

#define MAGIC       UINT64_C(0x31304d455454414d)
#define MAX_INDEX   (UINT64_C(64) << 20)
#define HUGETLBFS   0x958458f6

/* Identity, note, page size, file size, time; name, length, offset, runs */
#define INDEX_TYPE  "(sxttxa(stta(tt)))"

typedef struct Head {
    uint64_t magic, index_len;
    uint8_t checksum[32];
} Head;

/* To lock a file, a millisecond each */
#define MAX_TRIES 100

/* The smallest gap that is worth a mapping of its own, in pages */
#define FIRST_GAP 16

static uint64_t round_up(uint64_t n, uint64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

static TemplateBlock *block(const TemplateFile *f, unsigned i)
{
    return &g_array_index(f->blocks, TemplateBlock, i);
}

static void clear_block(void *opaque)
{
    TemplateBlock *b = opaque;

    g_free(b->name);
    g_array_unref(b->runs);
}

static TemplateFile *new_file(void)
{
    TemplateFile *f = g_new0(TemplateFile, 1);

    f->fd = -1;
    f->blocks = g_array_new(false, false, sizeof(TemplateBlock));
    g_array_set_clear_func(f->blocks, clear_block);
    return f;
}

TemplateFile *template_file_new(const char *identity, int64_t note,
                                uint64_t page_size)
{
    TemplateFile *f = new_file();

    f->identity = g_strdup(identity);
    f->note = note;
    f->page_size = page_size;
    return f;
}

void template_file_free(TemplateFile *f)
{
    if (!f) {
        return;
    }
    if (f->fd >= 0) {
        close(f->fd);
    }
    g_array_unref(f->blocks);
    g_free(f->identity);
    g_free(f);
}

static uint64_t sum(const GArray *runs)
{
    uint64_t bytes = 0;

    for (unsigned i = 0; i < runs->len; i++) {
        bytes += g_array_index(runs, TemplateRun, i).len;
    }
    return bytes;
}

static GArray *join(const GArray *runs, uint64_t gap)
{
    GArray *joined = g_array_new(false, false, sizeof(TemplateRun));

    for (unsigned i = 0; i < runs->len; i++) {
        TemplateRun run = g_array_index(runs, TemplateRun, i), *last;

        last = joined->len
               ? &g_array_index(joined, TemplateRun, joined->len - 1) : NULL;
        if (last && run.start - (last->start + last->len) < gap) {
            last->len = run.start + run.len - last->start;
        } else {
            g_array_append_val(joined, run);
        }
    }
    return joined;
}

void template_file_add_block(TemplateFile *f, const char *name, uint64_t len,
                             GArray *runs)
{
    TemplateBlock b = { .name = g_strdup(name), .len = len, .runs = runs };
    uint64_t gap = FIRST_GAP * f->page_size;
    const uint64_t most = 2 * sum(runs);

    while (b.runs->len > TEMPLATE_FILE_RUNS) {
        GArray *joined = join(b.runs, gap);

        if (sum(joined) > most) {
            g_array_unref(joined);
            break;
        }
        g_array_unref(b.runs);
        b.runs = joined;
        gap *= 2;
    }
    g_array_append_val(f->blocks, b);
}

uint64_t template_file_content(const TemplateFile *f)
{
    uint64_t bytes = 0;

    for (unsigned i = 0; i < f->blocks->len; i++) {
        bytes += sum(block(f, i)->runs);
    }
    return bytes;
}

uint64_t template_file_room(const TemplateFile *f, unsigned nr)
{
    uint64_t end = nr + 1 < f->blocks->len ? block(f, nr + 1)->offset : f->size;

    return end - block(f, nr)->offset;
}

static bool is_hugetlb(int fd)
{
    struct statfs fs;

    return fstatfs(fd, &fs) == 0 && (unsigned long)fs.f_type == HUGETLBFS;
}

bool template_file_is_hugetlb(const TemplateFile *f)
{
    return f->fd >= 0 && is_hugetlb(f->fd);
}

/* The index */

static GVariant *pack(const TemplateFile *f)
{
    GVariantBuilder blocks;

    g_variant_builder_init(&blocks, G_VARIANT_TYPE("a(stta(tt))"));
    for (unsigned i = 0; i < f->blocks->len; i++) {
        TemplateBlock *b = block(f, i);
        GVariant *runs = g_variant_new_fixed_array(G_VARIANT_TYPE("(tt)"),
                                                   b->runs->data, b->runs->len,
                                                   sizeof(TemplateRun));

        g_variant_builder_add(&blocks, "(stt@a(tt))", b->name, b->len,
                              b->offset, runs);
    }
    return g_variant_ref_sink(g_variant_new(INDEX_TYPE, f->identity, f->note,
                                            f->page_size, f->size,
                                            f->modified, &blocks));
}

static void checksum(const void *data, size_t len, uint8_t *sum_out)
{
    g_autoptr(GChecksum) sha = g_checksum_new(G_CHECKSUM_SHA256);
    gsize size = sizeof(((Head *)0)->checksum);

    g_checksum_update(sha, data, len);
    g_checksum_get_digest(sha, sum_out, &size);
}

/* What is wrong with it */
static const char *check_block(const TemplateFile *f, unsigned nr)
{
    const TemplateBlock *b = block(f, nr);
    uint64_t end = 0;

    if (b->len % f->page_size || b->offset % TEMPLATE_FILE_ALIGN ||
        b->offset > f->size || (nr && b->offset < block(f, nr - 1)->offset) ||
        b->len > template_file_room(f, nr)) {
        return "its blocks make no sense";
    }
    for (unsigned i = 0; i < b->runs->len; i++) {
        TemplateRun run = g_array_index(b->runs, TemplateRun, i);

        if (run.start % f->page_size || run.len % f->page_size || !run.len ||
            run.start > b->len || run.len > b->len - run.start ||
            (i && run.start < end)) {
            return "its runs make no sense";
        }
        end = run.start + run.len;
    }
    return NULL;
}

static const char *unpack(TemplateFile *f, GVariant *index)
{
    g_autoptr(GVariantIter) blocks = NULL;
    TemplateBlock b;
    GVariant *runs;

    if (!g_variant_is_normal_form(index)) {
        return "its index is not in order";
    }
    g_variant_get(index, INDEX_TYPE, &f->identity, &f->note, &f->page_size,
                  &f->size, &f->modified, &blocks);
    if (!f->page_size || f->page_size & (f->page_size - 1)) {
        return "its page size makes no sense";
    }
    while (g_variant_iter_next(blocks, "(stt@a(tt))", &b.name, &b.len,
                               &b.offset, &runs)) {
        gsize nr;
        const void *data = g_variant_get_fixed_array(runs, &nr,
                                                     sizeof(TemplateRun));

        b.runs = g_array_sized_new(false, false, sizeof(TemplateRun), nr);
        if (nr) {
            g_array_append_vals(b.runs, data, nr);
        }
        g_variant_unref(runs);
        g_array_append_val(f->blocks, b);
    }
    for (unsigned i = 0; i < f->blocks->len; i++) {
        const char *wrong = check_block(f, i);

        if (wrong) {
            return wrong;
        }
    }
    return NULL;
}

/* Reading */

static bool read_all(int fd, void *buf, size_t len, uint64_t offset)
{
    size_t done = 0;

    while (done < len) {
        ssize_t n = pread(fd, (char *)buf + done, len - done, offset + done);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            errno = n < 0 ? errno : EIO;
            return false;
        }
        done += n;
    }
    return true;
}

static char *read_index(TemplateFile *f, uint64_t size)
{
    g_autoptr(GVariant) index = NULL;
    g_autofree uint8_t *data = NULL;
    uint8_t found[sizeof(((Head *)0)->checksum)];
    Head head;
    const char *wrong;

    if (size < sizeof(head) || !read_all(f->fd, &head, sizeof(head), 0)) {
        return g_strdup("it is cut short");
    }
    if (head.magic != MAGIC) {
        return g_strdup("it is not a template, or one of another version");
    }
    if (head.index_len > MAX_INDEX || head.index_len > size - sizeof(head)) {
        return g_strdup("it is cut short");
    }
    data = g_malloc(head.index_len ?: 1);
    if (!read_all(f->fd, data, head.index_len, sizeof(head))) {
        return g_strdup_printf("it cannot be read: %s", g_strerror(errno));
    }
    checksum(data, head.index_len, found);
    if (memcmp(found, head.checksum, sizeof(found))) {
        return g_strdup("the checksum of its index is wrong");
    }
    index = g_variant_ref_sink(
        g_variant_new_from_data(G_VARIANT_TYPE(INDEX_TYPE), data,
                                head.index_len, false, NULL, NULL));
    wrong = unpack(f, index);
    return g_strdup(wrong);
}

/* Who may write to it could put anything into a guest */
static char *file_refusal(const struct stat *st)
{
    if (!S_ISREG(st->st_mode)) {
        return g_strdup("it is not a regular file");
    }
    if (st->st_uid != geteuid()) {
        return g_strdup_printf("it belongs to user %u, and QEMU runs as %u",
                               (unsigned)st->st_uid, (unsigned)geteuid());
    }
    if (st->st_mode & 077) {
        return g_strdup_printf("its mode is %04o, so that others may use it",
                               st->st_mode & 07777);
    }
    return NULL;
}

static char *content_refusal(TemplateFile *f, const struct stat *st,
                             const char *identity)
{
    char *reason = read_index(f, st->st_size);

    if (reason) {
        return reason;
    }
    if (strcmp(f->identity, identity)) {
        return g_strdup("it is of another snapshot");
    }
    if ((uint64_t)st->st_size != f->size) {
        return g_strdup_printf("it has %" G_GUINT64_FORMAT " bytes, not %"
                               G_GUINT64_FORMAT, (uint64_t)st->st_size,
                               f->size);
    }
    if (st->st_mtim.tv_sec != f->modified || st->st_mtim.tv_nsec) {
        return g_strdup("it has been written to since it was made");
    }
    return NULL;
}

/* Who makes or removes a file has it locked for a moment only */
static bool lock_shared(int fd)
{
    for (unsigned tries = 0; flock(fd, LOCK_SH | LOCK_NB) < 0; tries++) {
        if (errno != EWOULDBLOCK || tries == MAX_TRIES) {
            return false;
        }
        g_usleep(1000);
    }
    return true;
}

static char *open_refusal(TemplateFile *f, const char *identity)
{
    struct timespec used[2] = { { .tv_nsec = UTIME_NOW },
                                { .tv_nsec = UTIME_OMIT } };
    char *reason;
    struct stat st;

    if (fstat(f->fd, &st) < 0) {
        return g_strdup(g_strerror(errno));
    }
    reason = file_refusal(&st);
    if (!reason && !lock_shared(f->fd)) {
        reason = g_strdup(errno == EWOULDBLOCK ? "another process has locked it"
                                               : g_strerror(errno));
    }
    reason = reason ?: content_refusal(f, &st, identity);
    if (!reason) {
        /* Which says whose turn it is to be removed; no harm if that fails */
        futimens(f->fd, used);
    }
    return reason;
}

TemplateFile *template_file_open(int dir, const char *identity, char **reason)
{
    g_autofree char *name = template_file_name(identity);
    TemplateFile *f = new_file();

    *reason = NULL;
    f->fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (f->fd >= 0) {
        *reason = open_refusal(f, identity);
    } else if (errno != ENOENT) {
        *reason = g_strdup(errno == ELOOP ? "it is a symbolic link"
                                          : g_strerror(errno));
    }
    if (f->fd < 0 || *reason) {
        template_file_free(f);
        return NULL;
    }
    return f;
}

/* Writing */

/* @window: the whole file, on hugetlbfs, which knows no write() */
typedef struct Output {
    int fd;
    uint8_t *window;
    uint64_t unit;
} Output;

static bool put(const Output *out, const void *data, uint64_t len,
                uint64_t offset)
{
    uint64_t done = 0;

    if (out->window) {
        uint64_t first = offset / out->unit * out->unit;

        if (fallocate(out->fd, 0, first,
                      round_up(offset + len, out->unit) - first) < 0) {
            return false;
        }
        memcpy(out->window + offset, data, len);
        return true;
    }
    while (done < len) {
        ssize_t n = pwrite(out->fd, (const char *)data + done, len - done,
                           offset + done);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            errno = n < 0 ? errno : ENOSPC;
            return false;
        }
        done += n;
    }
    return true;
}

static bool put_index(const TemplateFile *f, const Output *out)
{
    g_autoptr(GVariant) index = pack(f);
    Head head = { .magic = MAGIC, .index_len = g_variant_get_size(index) };
    const void *data = g_variant_get_data(index);

    if (head.index_len > MAX_INDEX) {
        errno = EFBIG;
        return false;
    }
    checksum(data, head.index_len, head.checksum);
    return put(out, data, head.index_len, sizeof(head)) &&
           put(out, &head, sizeof(head), 0);
}

static bool put_blocks(const TemplateFile *f, const Output *out,
                       uint8_t *const hosts[])
{
    for (unsigned i = 0; i < f->blocks->len; i++) {
        TemplateBlock *b = block(f, i);

        for (unsigned j = 0; j < b->runs->len; j++) {
            TemplateRun run = g_array_index(b->runs, TemplateRun, j);

            if (!put(out, hosts[i] + run.start, run.len,
                     b->offset + run.start)) {
                return false;
            }
        }
    }
    return true;
}

/* The length of the index does not depend on the numbers in it */
static void lay_out(TemplateFile *f, uint64_t unit)
{
    g_autoptr(GVariant) index = pack(f);
    uint64_t at = sizeof(Head) + g_variant_get_size(index);

    for (unsigned i = 0; i < f->blocks->len; i++) {
        TemplateBlock *b = block(f, i);

        at = round_up(at, unit);
        b->offset = at;
        at += b->len;
    }
    f->size = round_up(at, unit);
}

/*
 * The time is one that has passed, so that a change from now on sets another,
 * and of full seconds, which all file systems can tell.
 */
static bool finish(TemplateFile *f, const Output *out)
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
    if (is_hugetlb(out->fd)) {
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
    return ok && finish(f, out);
}

bool template_file_is_called(int dir, const char *name, int fd)
{
    struct stat by_name, by_fd;

    return fstatat(dir, name, &by_name, AT_SYMLINK_NOFOLLOW) == 0 &&
           fstat(fd, &by_fd) == 0 && by_name.st_ino == by_fd.st_ino &&
           by_name.st_dev == by_fd.st_dev;
}

/* Locked, empty and with that name; -1 with @reason set if that fails */
static int open_unfinished(int dir, const char *name, char **reason)
{
    int fd = openat(dir, name,
                    O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK,
                    0600);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0) {
        *reason = g_strdup(g_strerror(errno));
    } else if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        *reason = g_strdup(errno == EWOULDBLOCK
                           ? "another process is making it"
                           : g_strerror(errno));
    } else if (!template_file_is_called(dir, name, fd)) {
        *reason = g_strdup("another process has just made it");
    } else {
        *reason = st.st_nlink > 1 ? g_strdup("it has more than one name")
                                  : file_refusal(&st);
        if (!*reason && ftruncate(fd, 0) < 0) {
            *reason = g_strdup(g_strerror(errno));
        }
    }
    if (*reason && fd >= 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* Whether somebody has made it while we were not looking */
static bool is_there(int dir, const TemplateFile *f)
{
    char *reason;
    TemplateFile *other = template_file_open(dir, f->identity, &reason);
    bool same = other && other->note == f->note &&
                other->blocks->len == f->blocks->len;

    for (unsigned i = 0; same && i < f->blocks->len; i++) {
        same = !strcmp(block(f, i)->name, block(other, i)->name) &&
               block(f, i)->len == block(other, i)->len;
    }
    g_free(reason);
    template_file_free(other);
    return same;
}

bool template_file_write(TemplateFile *f, int dir, uint8_t *const hosts[],
                         char **reason)
{
    g_autofree char *name = template_file_name(f->identity);
    g_autofree char *unfinished = g_strconcat(name, ".new", NULL);
    Output out = { 0 };

    *reason = NULL;
    out.fd = open_unfinished(dir, unfinished, reason);
    if (out.fd < 0) {
        return false;
    }
    if (is_there(dir, f)) {
        unlinkat(dir, unfinished, 0);
    } else if (!write_file(f, &out, hosts) ||
               renameat(dir, unfinished, dir, name) < 0) {
        *reason = g_strdup(g_strerror(errno));
        unlinkat(dir, unfinished, 0);
    }
    close(out.fd);
    return !*reason;
}
