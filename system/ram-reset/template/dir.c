/*
 * Templates: limit the size of their directory
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <dirent.h>
#include <sys/file.h>
#include <sys/vfs.h>
#include "system/ram-reset/template/file-internal.h"
#include "system/ram-reset/prim/trusted-file.h"
#include "system/ram-reset/template/dir.h"

/* @used: time of the last use, in seconds since 1970 */
typedef struct Candidate {
    char *name;
    uint64_t bytes;
    int64_t used;
} Candidate;

void template_dir_remove(int dir, const char *identity)
{
    g_autofree char *name = template_file_name(identity);

    unlinkat(dir, name, 0);
}

static void clear_candidate(void *opaque)
{
    g_free(((Candidate *)opaque)->name);
}

/* False with errno set if the file cannot be examined */
static bool add_file(GArray *files, int dir, const char *name)
{
    struct stat st;

    if (!template_file_is_name(name)) {
        return true;
    }
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        return errno == ENOENT;
    }
    if (S_ISREG(st.st_mode) && trusted_file_is_ours(&st)) {
        Candidate c = {
            .name = g_strdup(name), .bytes = (uint64_t)st.st_blocks * 512,
            .used = st.st_atim.tv_sec,
        };

        g_array_append_val(files, c);
    }
    return true;
}

/* The next entry; or NULL, with errno 0 at the end */
static struct dirent *next_entry(DIR *d)
{
    errno = 0;
    return readdir(d);
}

/*
 * An array of Candidate with all our files; @err: 0, or the reason why it is
 * incomplete
 */
static GArray *list_files(int dir, int *err)
{
    GArray *files = g_array_new(false, false, sizeof(Candidate));
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;

    g_array_set_clear_func(files, clear_candidate);
    *err = d ? 0 : errno;
    while (d && (entry = next_entry(d))) {
        if (!add_file(files, dir, entry->d_name)) {
            *err = errno;
        }
    }
    if (d) {
        *err = *err ?: errno;
        closedir(d);
    } else if (fd >= 0) {
        close(fd);
    }
    return files;
}

static uint64_t template_dir_total(const GArray *files)
{
    uint64_t bytes = 0;

    for (unsigned i = 0; i < files->len; i++) {
        bytes += g_array_index(files, Candidate, i).bytes;
    }
    return bytes;
}

uint64_t template_dir_size(int dir)
{
    int err;
    g_autoptr(GArray) files = list_files(dir, &err);

    return template_dir_total(files);
}

/* True if nobody had the file locked, and it has been removed */
static bool remove_unused(int dir, const char *name)
{
    int fd = trusted_file_open(dir, name, O_RDONLY);
    bool removed = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
                   template_file_is_called(dir, name, fd) &&
                   unlinkat(dir, name, 0) == 0;

    if (fd >= 0) {
        close(fd);
    }
    return removed;
}

static int by_use(const void *a, const void *b)
{
    int64_t x = ((const Candidate *)a)->used, y = ((const Candidate *)b)->used;

    return x < y ? -1 : x > y;
}

/* Default limit for all templates in bytes; UINT64_MAX if unknown */
static uint64_t default_limit(const struct statfs *fs)
{
    return fs->f_blocks && (int64_t)fs->f_blocks > 0
           ? (uint64_t)fs->f_blocks * fs->f_bsize / 2 : UINT64_MAX;
}

static bool check_space(int dir, uint64_t needed, Error **errp)
{
    struct statfs fs;

    if (fstatfs(dir, &fs) == 0 && default_limit(&fs) != UINT64_MAX &&
        (uint64_t)fs.f_bavail * fs.f_bsize < needed) {
        error_setg(errp, "its file system has %" G_GUINT64_FORMAT " MiB left, "
                   "and it takes %" G_GUINT64_FORMAT " MiB",
                   (uint64_t)fs.f_bavail * fs.f_bsize >> 20, needed >> 20);
        return false;
    }
    return true;
}

bool template_dir_retire(int dir, const char *identity, int own)
{
    g_autofree char *name = template_file_name(identity);
    bool removed;

    if (own < 0 || !template_file_is_called(dir, name, own)) {
        return remove_unused(dir, name);
    }
    /* This replaces our shared lock, which is lost if it fails */
    removed = flock(own, LOCK_EX | LOCK_NB) == 0 &&
              template_file_is_called(dir, name, own) &&
              unlinkat(dir, name, 0) == 0;
    template_file_lock(own);
    return removed;
}

static bool may_go(const Candidate *c, GHashTable *own, int64_t since)
{
    return own ? g_hash_table_contains(own, c->name) : c->used < since;
}

/* Return the number of bytes left */
static uint64_t remove_oldest(int dir, GArray *files, uint64_t most,
                              GHashTable *own, int64_t since)
{
    uint64_t all = template_dir_total(files);

    g_array_sort(files, by_use);
    for (unsigned i = 0; i < files->len; i++) {
        Candidate *c = &g_array_index(files, Candidate, i);
        bool unfinished = template_file_is_unfinished_name(c->name);

        if ((unfinished || (all > most && may_go(c, own, since))) &&
            remove_unused(dir, c->name)) {
            all -= c->bytes;
        }
    }
    return all;
}

bool template_dir_make_room(int dir, uint64_t limit, uint64_t needed,
                            GHashTable *own, int64_t since, Error **errp)
{
    int err;
    g_autoptr(GArray) files = list_files(dir, &err);
    struct statfs fs;

    if (err || fstatfs(dir, &fs) < 0) {
        error_setg(errp, "%s", strerror(err ?: errno));
        return false;
    }
    limit = limit ?: default_limit(&fs);
    if (needed > limit) {
        error_setg(errp, "it takes %" G_GUINT64_FORMAT " MiB, and all "
                   "templates may have %" G_GUINT64_FORMAT " MiB",
                   needed >> 20, limit >> 20);
        return false;
    }
    if (remove_oldest(dir, files, limit - needed, own, since) >
        limit - needed) {
        error_setg(errp, "it takes %" G_GUINT64_FORMAT " MiB, all may have %"
                   G_GUINT64_FORMAT " MiB, and the others %s", needed >> 20,
                   limit >> 20, own ? "are not this QEMU's, or in use"
                                    : "have been used lately");
        return false;
    }
    return check_space(dir, needed, errp);
}
