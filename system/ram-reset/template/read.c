/*
 * Templates: open a file with a snapshot's RAM
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset/template/file-internal.h"
#include "system/ram-reset/prim/trusted-file.h"

static bool template_read_index(TemplateFile *f, uint64_t size, Error **errp)
{
    g_autoptr(GVariant) index = NULL;
    g_autofree uint8_t *data = NULL;
    uint8_t found[sizeof(((TemplateHead *)0)->checksum)];
    TemplateHead head;

    if (size < sizeof(head) ||
        prim_read_all(f->fd, &head, sizeof(head), 0) < sizeof(head)) {
        error_setg(errp, "it is cut short");
        return false;
    }
    if (head.magic != TEMPLATE_FILE_MAGIC) {
        error_setg(errp, "it is not a template, or one of another version");
        return false;
    }
    if (head.index_len > TEMPLATE_FILE_MAX_INDEX ||
        head.index_len > size - sizeof(head)) {
        error_setg(errp, "it is cut short");
        return false;
    }
    data = g_malloc(head.index_len ?: 1);
    if (prim_read_all(f->fd, data, head.index_len, sizeof(head)) <
        head.index_len) {
        error_setg(errp, "it cannot be read: %s", strerror(errno));
        return false;
    }
    template_file_checksum(data, head.index_len, found);
    if (memcmp(found, head.checksum, sizeof(found))) {
        error_setg(errp, "the checksum of its index is wrong");
        return false;
    }
    index = g_variant_ref_sink(
        g_variant_new_from_data(G_VARIANT_TYPE(TEMPLATE_FILE_INDEX_TYPE), data,
                                head.index_len, false, NULL, NULL));
    return template_file_unpack(f, index, errp);
}

static bool template_check_content(TemplateFile *f, const struct stat *st,
                                   const char *identity, Error **errp)
{
    if (!template_read_index(f, st->st_size, errp)) {
        return false;
    }
    if (strcmp(f->identity, identity)) {
        error_setg(errp, "it is of another snapshot");
    } else if ((uint64_t)st->st_size != f->size) {
        error_setg(errp, "it has %" G_GUINT64_FORMAT " bytes, not %"
                   G_GUINT64_FORMAT, (uint64_t)st->st_size, f->size);
    } else if (st->st_mtim.tv_sec != f->modified || st->st_mtim.tv_nsec) {
        error_setg(errp, "it has been written to since it was made");
    } else {
        return true;
    }
    return false;
}

static bool template_check_file(TemplateFile *f, const char *identity,
                                Error **errp)
{
    struct timespec used[2] = { { .tv_nsec = UTIME_NOW },
                                { .tv_nsec = UTIME_OMIT } };
    g_autofree char *refusal = NULL;
    struct stat st;

    if (fstat(f->fd, &st) < 0) {
        error_setg(errp, "%s", strerror(errno));
        return false;
    }
    /* A user who can write to the file controls the guest */
    refusal = trusted_file_refusal(&st, TRUST_LINKS);
    if (refusal) {
        error_setg(errp, "%s", refusal);
        return false;
    }
    if (!template_file_lock(f->fd)) {
        error_setg(errp, "%s", errno == EWOULDBLOCK
                               ? "another process has locked it"
                               : strerror(errno));
        return false;
    }
    if (!template_check_content(f, &st, identity, errp)) {
        return false;
    }
    /*
     * The access time decides which file is removed first; a failure is
     * harmless
     */
    futimens(f->fd, used);
    return true;
}

bool template_file_open(int dir, const char *identity, TemplateFile **f,
                        Error **errp)
{
    g_autofree char *name = template_file_name(identity);
    TemplateFile *opened = template_file_alloc();
    bool ok;

    *f = NULL;
    opened->fd = trusted_file_open(dir, name, O_RDONLY);
    if (opened->fd >= 0) {
        ok = template_check_file(opened, identity, errp);
    } else {
        ok = errno == ENOENT;
        if (!ok) {
            error_setg(errp, "%s", trusted_file_open_error(errno));
        }
    }
    if (ok && opened->fd >= 0) {
        *f = opened;
    } else {
        template_file_free(opened);
    }
    return ok;
}
