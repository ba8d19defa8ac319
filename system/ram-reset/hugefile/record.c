/*
 * The record of a hugepage file between two runs
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bitmap.h"
#include "qemu/cutils.h"
#include <sys/file.h>
#include "system/ram-reset/hugefile/record.h"
#include "system/ram-reset/prim/prim.h"
#include "system/ram-reset/prim/trusted-file.h"

#define VERSION   1
#define GROUP     "hugefile"
#define HEADER    "[" GROUP "]\n"
#define CHECKSUM  "sha256="
#define DIGITS    64
#define MAX_SIZE  (16 * 1024 * 1024)
#define MAX_LINES 64
#define MAX_PAGES (UINT64_C(1) << 24)   /* 32 TiB of 2 MiB pages */

void hugefile_record_clear(HugeRecord *rec)
{
    g_free(rec->boot_id);
    g_free(rec->dirty);
    memset(rec, 0, sizeof(*rec));
}

char *hugefile_record_boot_id(void)
{
    char *id = NULL;

    if (!g_file_get_contents("/proc/sys/kernel/random/boot_id", &id, NULL,
                             NULL)) {
        return NULL;
    }
    return g_strchomp(id);
}

/*
 * The file that will be overwritten must have been a record, damaged or not.  A
 * file may be full of NULs if it was written just before a power failure.
 */
static bool check_content(int fd, Error **errp)
{
    struct stat st;
    g_autofree char *text = NULL;
    ssize_t n;

    if (fstat(fd, &st) < 0) {
        error_setg(errp, "%s", strerror(errno));
        return false;
    }
    if (st.st_size <= MAX_SIZE) {
        text = g_malloc0(st.st_size + 1);
        n = pread(fd, text, st.st_size, 0);
        if (!st.st_size || (n == st.st_size &&
                            (g_str_has_prefix(text, HEADER) ||
                             buffer_is_zero(text, n) ||
                             g_strstr_len(text, n, "\n" CHECKSUM)))) {
            return true;
        }
    }
    error_setg(errp, "it is not a state file; remove it, or give another one "
               "with state=FILE");
    return false;
}

static bool record_lock(int fd, Error **errp)
{
    HugeRecord rec = { 0 };

    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        return true;
    }
    if (errno != EWOULDBLOCK) {
        error_setg(errp, "it cannot be locked: %s", strerror(errno));
        return false;
    }
    hugefile_record_read(fd, &rec, NULL);
    if (rec.in_use) {
        error_setg(errp, "process %" G_GINT64_FORMAT " uses it", rec.pid);
    } else {
        error_setg(errp, "another process uses it");
    }
    hugefile_record_clear(&rec);
    return false;
}

int hugefile_record_open(const char *path, Error **errp)
{
    int fd = trusted_file_open(AT_FDCWD, path, O_RDWR | O_CREAT);
    g_autofree char *refusal = NULL;

    if (fd < 0) {
        error_setg(errp, "%s", trusted_file_open_error(errno));
        return -1;
    }
    /* A user who can replace the file can also call dirty pages clean */
    refusal = trusted_file_fd_refusal(fd, 0);
    if (refusal) {
        error_setg(errp, "%s", refusal);
    } else if (record_lock(fd, errp) && check_content(fd, errp)) {
        return fd;
    }
    close(fd);
    return -1;
}

static char *format_dirty(const HugeRecord *rec)
{
    GString *s = g_string_new(NULL);
    uint64_t first, i = 0;

    while ((first = find_next_bit(rec->dirty, rec->pages, i)) < rec->pages) {
        i = find_next_zero_bit(rec->dirty, rec->pages, first);
        g_string_append_printf(s, "%s%" G_GUINT64_FORMAT "-%" G_GUINT64_FORMAT,
                               s->len ? "," : "", first, i - 1);
    }
    return g_string_free(s, false);
}

/* Parse a number of at least @least at *@text, and move *@text behind it */
static bool parse_page(const HugeRecord *rec, const char **text,
                       uint64_t least, uint64_t *nr)
{
    char *end;

    if (!g_ascii_isdigit(**text)) {
        return false;
    }
    *nr = g_ascii_strtoull(*text, &end, 10);
    *text = end;
    return *nr >= least && *nr < rec->pages;
}

/* Ranges must rise: this limits the time to read them */
static bool parse_dirty(HugeRecord *rec, const char *text)
{
    uint64_t first, last, next = 0;

    while (*text) {
        if (!parse_page(rec, &text, next, &first) || *text++ != '-' ||
            !parse_page(rec, &text, first, &last) ||
            (*text && (*text++ != ',' || !*text))) {
            return false;
        }
        bitmap_set(rec->dirty, first, last - first + 1);
        next = last + 1;
    }
    return true;
}

static char *format_record(const HugeRecord *rec)
{
    g_autofree char *dirty = format_dirty(rec);
    g_autofree char *body = NULL, *sum = NULL;

    body = g_strdup_printf(HEADER "version=%d\nin-use=%s\npid=%"
                           G_GINT64_FORMAT "\nboot-id=%s\ndevice=%"
                           G_GUINT64_FORMAT "\ninode=%" G_GUINT64_FORMAT
                           "\npage-size=%" G_GUINT64_FORMAT "\npages=%"
                           G_GUINT64_FORMAT "\naccess-time=%" G_GINT64_FORMAT
                           "\ndirty=%s\n", VERSION,
                           rec->in_use ? "true" : "false", rec->pid,
                           rec->boot_id ?: "", rec->device, rec->inode,
                           rec->page_size, rec->pages, rec->access_time, dirty);
    sum = g_compute_checksum_for_string(G_CHECKSUM_SHA256, body, -1);
    return g_strdup_printf("%s" CHECKSUM "%s\n", body, sum);
}

/* Cut the checksum off @text; false if it does not match the text before it */
static bool cut_checksum(char *text, gsize len)
{
    const gsize end = strlen(CHECKSUM) + DIGITS + 1;
    g_autofree char *sum = NULL;
    char *line;

    if (len < end || strlen(text) != len) {
        return false;
    }
    line = text + len - end;
    sum = g_compute_checksum_for_data(G_CHECKSUM_SHA256, (guchar *)text,
                                      line - text);
    if (strncmp(line, CHECKSUM, strlen(CHECKSUM)) ||
        strncmp(line + strlen(CHECKSUM), sum, DIGITS) ||
        line[end - 1] != '\n') {
        return false;
    }
    *line = '\0';
    return true;
}

static bool parse_fields(HugeRecord *rec, GKeyFile *kf, GError **err)
{
    g_autofree char *dirty = NULL;

#define READ(to, type, key) \
    do { \
        (to) = g_key_file_get_##type(kf, GROUP, key, err); \
        if (*err) { \
            return false; \
        } \
    } while (0)

    READ(rec->in_use, boolean, "in-use");
    READ(rec->pid, int64, "pid");
    READ(rec->boot_id, string, "boot-id");
    READ(rec->device, uint64, "device");
    READ(rec->inode, uint64, "inode");
    READ(rec->page_size, uint64, "page-size");
    READ(rec->pages, uint64, "pages");
    READ(rec->access_time, int64, "access-time");
    READ(dirty, string, "dirty");
#undef READ
    if (!rec->pages || rec->pages > MAX_PAGES) {
        return false;
    }
    rec->dirty = bitmap_new(rec->pages);
    return !*dirty || parse_dirty(rec, dirty);
}

/* GKeyFile would allocate memory for each line */
static bool has_many_lines(const char *text)
{
    unsigned count = 0;

    for (; (text = strchr(text, '\n')) && count <= MAX_LINES; text++) {
        count++;
    }
    return count > MAX_LINES;
}

static bool parse_record(HugeRecord *rec, char *text, gsize len, Error **errp)
{
    g_autoptr(GKeyFile) kf = g_key_file_new();
    g_autoptr(GError) err = NULL;
    int version;

    if (!cut_checksum(text, len)) {
        error_setg(errp, "its checksum does not fit its content");
        return false;
    }
    if (has_many_lines(text)) {
        error_setg(errp, "it has more than %d lines", MAX_LINES);
        return false;
    }
    if (!g_key_file_load_from_data(kf, text, -1, G_KEY_FILE_NONE, &err)) {
        error_setg(errp, "%s", err->message);
        return false;
    }
    version = g_key_file_get_integer(kf, GROUP, "version", &err);
    if (err || version != VERSION) {
        error_setg(errp, "it has version %d, not %d", version, VERSION);
        return false;
    }
    if (!parse_fields(rec, kf, &err)) {
        hugefile_record_clear(rec);
        error_setg(errp, "%s", err ? err->message : "its numbers are invalid");
        return false;
    }
    return true;
}

bool hugefile_record_read(int fd, HugeRecord *rec, Error **errp)
{
    g_autofree char *text = NULL;
    struct stat st;

    hugefile_record_clear(rec);
    if (fstat(fd, &st) < 0 || st.st_size > MAX_SIZE) {
        error_setg(errp, "it is too large");
        return false;
    }
    text = g_malloc0(st.st_size + 1);
    if (prim_read_all(fd, text, st.st_size, 0) < (size_t)st.st_size) {
        error_setg(errp, "it cannot be read: %s", strerror(errno));
        return false;
    }
    return !st.st_size || parse_record(rec, text, st.st_size, errp);
}

static int write_text(int fd, const char *text)
{
    size_t len = strlen(text);

    return ftruncate(fd, 0) < 0 || prim_write_all(fd, text, len, 0) < len
           ? -errno : 0;
}

int hugefile_record_write(int fd, const HugeRecord *rec)
{
    g_autofree char *text = format_record(rec);
    PrimLimit limit;
    int ret;

    prim_limit_begin(&limit);
    ret = write_text(fd, text);
    prim_limit_end(&limit);
    return ret;
}
