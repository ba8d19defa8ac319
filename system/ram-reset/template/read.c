/*
 * Templates: open a file with a snapshot's RAM
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset/template/file-internal.h"
#include "system/ram-reset/prim/trusted-file.h"

static char *template_read_index(TemplateFile *f, uint64_t size)
{
    g_autoptr(GVariant) index = NULL;
    g_autofree uint8_t *data = NULL;
    uint8_t found[sizeof(((TemplateHead *)0)->checksum)];
    TemplateHead head;
    const char *wrong;

    if (size < sizeof(head) ||
        prim_read_all(f->fd, &head, sizeof(head), 0) < sizeof(head)) {
        return g_strdup("it is cut short");
    }
    if (head.magic != TEMPLATE_FILE_MAGIC) {
        return g_strdup("it is not a template, or one of another version");
    }
    if (head.index_len > TEMPLATE_FILE_MAX_INDEX ||
        head.index_len > size - sizeof(head)) {
        return g_strdup("it is cut short");
    }
    data = g_malloc(head.index_len ?: 1);
    if (prim_read_all(f->fd, data, head.index_len, sizeof(head)) <
        head.index_len) {
        return g_strdup_printf("it cannot be read: %s", g_strerror(errno));
    }
    template_file_checksum(data, head.index_len, found);
    if (memcmp(found, head.checksum, sizeof(found))) {
        return g_strdup("the checksum of its index is wrong");
    }
    index = g_variant_ref_sink(
        g_variant_new_from_data(G_VARIANT_TYPE(TEMPLATE_FILE_INDEX_TYPE), data,
                                head.index_len, false, NULL, NULL));
    wrong = template_file_unpack(f, index);
    return g_strdup(wrong);
}

static char *template_content_refusal(TemplateFile *f, const struct stat *st,
                                      const char *identity)
{
    char *reason = template_read_index(f, st->st_size);

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

static char *open_refusal(TemplateFile *f, const char *identity)
{
    struct timespec used[2] = { { .tv_nsec = UTIME_NOW },
                                { .tv_nsec = UTIME_OMIT } };
    char *reason;
    struct stat st;

    if (fstat(f->fd, &st) < 0) {
        return g_strdup(g_strerror(errno));
    }
    /* A user who can write to the file controls the guest */
    reason = trusted_file_refusal(&st, TRUST_LINKS);
    if (!reason && !template_file_lock(f->fd)) {
        reason = g_strdup(errno == EWOULDBLOCK ? "another process has locked it"
                                               : g_strerror(errno));
    }
    reason = reason ?: template_content_refusal(f, &st, identity);
    if (!reason) {
        /*
         * The access time decides which file is removed first; a failure is
         * harmless
         */
        futimens(f->fd, used);
    }
    return reason;
}

TemplateFile *template_file_open(int dir, const char *identity, char **reason)
{
    g_autofree char *name = template_file_name(identity);
    TemplateFile *f = template_file_alloc();

    *reason = NULL;
    f->fd = trusted_file_open(dir, name, O_RDONLY);
    if (f->fd >= 0) {
        *reason = open_refusal(f, identity);
    } else if (errno != ENOENT) {
        *reason = g_strdup(trusted_file_open_error(errno));
    }
    if (f->fd < 0 || *reason) {
        template_file_free(f);
        return NULL;
    }
    return f;
}
