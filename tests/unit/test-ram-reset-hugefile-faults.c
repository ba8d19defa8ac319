/*
 * Hugepage files and their records when the kernel refuses any call
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <glib/gstdio.h>
#include "system/ram-reset/hugefile/file.h"
#include "system/ram-reset/hugefile/record.h"
#include "system/ram-reset/prim/trusted-file.h"
#include "faults.h"
#include "ram.h"

/* Folders for files; @huge: on hugetlbfs, or NULL */
static char *plain, *huge;

/*
 * @file: the file of RAM, or its record; @fd: its descriptor; @second: QEMU's
 * own descriptor; @notice: from hugefile_file_notice()
 */
typedef struct State {
    char *file;
    int fd, second, notice;
    HugeRecord old, new, found;
} State;

static State *state_new(const char *in, const char *name)
{
    State *s = g_new0(State, 1);

    s->file = g_build_filename(in, name, NULL);
    s->fd = s->second = s->notice = -1;
    return s;
}

static void teardown(void *opaque)
{
    State *s = opaque;

    unlink(s->file);
    g_free(s->file);
    g_free(s);
}

/* A hugepage file that one QEMU after the other claims */

static void *setup_ram(const void *in)
{
    return state_new(in, "ram");
}

static void close_one(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

static bool run_create(void *opaque)
{
    State *s = opaque;

    return hugefile_file_create(s->file, 2 * HUGE_SIZE, &s->fd, NULL) &&
           hugefile_file_reserve(s->fd, 2 * HUGE_SIZE, HUGE_SIZE, NULL);
}

/* An empty file that nobody could lock may remain, too */
static void check_create(void *opaque, bool ok)
{
    State *s = opaque;
    struct stat st;

    if (ok) {
        g_assert_cmpint(fstat(s->fd, &st), ==, 0);
        g_assert_cmpint(st.st_size, ==, 2 * HUGE_SIZE);
        g_assert_cmpint(fcntl(s->fd, F_GETFL) & O_ACCMODE, ==, O_RDONLY);
    } else if (s->fd < 0 && stat(s->file, &st) == 0 && st.st_size) {
        faults_wrong("a file is left behind");
    }
    close_one(&s->fd);
    unlink(s->file);
}

static void *setup_left_over(const void *in)
{
    State *s = setup_ram(in);

    g_assert_true(hugefile_file_create(s->file, 2 * HUGE_SIZE, &s->fd, NULL));
    close_one(&s->fd);
    return s;
}

/* As in hugefile/claim.c and hugefile.c; QEMU has mapped the file by @second */
static bool run_take(void *opaque)
{
    State *s = opaque;
    int64_t time;
    bool ok;

    s->second = -1;
    if (!hugefile_file_open(s->file, &s->fd, NULL) || s->fd < 0) {
        return false;
    }
    s->notice = hugefile_file_notice(s->fd);
    s->second = open(s->file, O_RDWR | O_CLOEXEC);
    if (s->second < 0) {
        return false;
    }
    ok = hugefile_file_move_lock(s->fd, s->second, s->file, NULL);
    s->fd = -1;
    ok = ok && hugefile_file_watch(s->second, &time);
    if (s->notice >= 0) {
        ok = !hugefile_file_was_closed(s->notice) && ok;
        s->notice = -1;
    } else {
        ok = false;
    }
    return ok && trusted_file_is_ours_alone(s->second, true);
}

/* The owner of the file releases it, and another can claim it afterwards */
static void check_take(void *opaque, bool ok)
{
    State *s = opaque;
    int fd;

    if (ok && hugefile_file_open(s->file, &fd, NULL)) {
        faults_wrong("somebody else could take it");
    }
    close_one(&s->fd);
    close_one(&s->second);
    close_one(&s->notice);
}

/* The record of such a file */

static unsigned long all_dirty[] = { 0xf }, clean[] = { 0 };

static void *setup_record(const void *in)
{
    State *s = state_new(in, "state");

    s->old = (HugeRecord) { .pid = 1, .in_use = true, .page_size = HUGE_SIZE,
                            .boot_id = (char *)"boot", .pages = 4,
                            .dirty = all_dirty };
    s->new = s->old;
    s->new.in_use = false;
    s->new.dirty = clean;
    s->fd = hugefile_record_open(s->file, NULL);
    g_assert_cmpint(hugefile_record_write(s->fd, &s->old), ==, 0);
    close_one(&s->fd);
    return s;
}

static bool run_record(void *opaque)
{
    State *s = opaque;

    s->fd = hugefile_record_open(s->file, NULL);
    return s->fd >= 0 && hugefile_record_write(s->fd, &s->new) == 0;
}

static void assert_record(const HugeRecord *rec, bool in_use)
{
    if (rec->in_use != in_use || rec->pages != 4 ||
        rec->dirty[0] != (in_use ? all_dirty : clean)[0]) {
        faults_wrong("wrong record");
    }
}

/* Half a record is no record, which is safe */
static void check_record(void *opaque, bool ok)
{
    State *s = opaque;
    int fd;

    close_one(&s->fd);
    fd = hugefile_record_open(s->file, NULL);
    if (fd < 0) {
        faults_wrong("the file cannot be used any more");
    }
    if (hugefile_record_read(fd, &s->found, NULL) && s->found.pages) {
        assert_record(&s->found, ok ? false : s->found.in_use);
    } else if (ok) {
        faults_wrong("the record is lost");
    }
    hugefile_record_clear(&s->found);
    close(fd);
}

static bool run_read_record(void *opaque)
{
    State *s = opaque;
    g_autofree char *boot_id = hugefile_record_boot_id();
    bool ok;

    s->fd = hugefile_record_open(s->file, NULL);
    ok = s->fd >= 0 && hugefile_record_read(s->fd, &s->found, NULL) && boot_id;
    close_one(&s->fd);
    return ok;
}

static void check_read_record(void *opaque, bool ok)
{
    State *s = opaque;

    if (ok) {
        assert_record(&s->found, true);
    }
    hugefile_record_clear(&s->found);
}

static const FaultTest create = { setup_ram, run_create, check_create,
                                  teardown };
static const FaultTest take = { setup_left_over, run_take, check_take,
                                teardown };
static const FaultTest write_record = { setup_record, run_record, check_record,
                                        teardown };
static const FaultTest read_record = { setup_record, run_read_record,
                                       check_read_record, teardown };

static void sweep_ram(void)
{
    static const FaultKind seen[] = {
        FAULT_CLOSE, FAULT_FCNTL, FAULT_FLOCK, FAULT_FSTAT, FAULT_FSTATFS,
        FAULT_FSTATVFS, FAULT_FUTIMENS, FAULT_INOTIFY_ADD_WATCH,
        FAULT_INOTIFY_INIT, FAULT_LSTAT, FAULT_MMAP, FAULT_MUNMAP, FAULT_OPEN,
        FAULT_OPENAT, FAULT_READ, FAULT_KINDS,
    };

    if (may_use_hugetlbfs(huge, 8)) {
        faults_sweep("hugefile-file-create", &create, huge);
        faults_sweep("hugefile-file-take", &take, huge);
        faults_assert_seen(seen);
    }
}

static void sweep_record(void)
{
    static const FaultKind seen[] = {
        FAULT_CLOSE, FAULT_FLOCK, FAULT_FSTAT, FAULT_FTRUNCATE,
        FAULT_GET_CONTENTS, FAULT_OPENAT, FAULT_PREAD, FAULT_PWRITE,
        FAULT_KINDS,
    };

    faults_sweep("hugefile-record-write", &write_record, plain);
    faults_sweep("hugefile-record-read", &read_record, plain);
    faults_assert_seen(seen);
}

/* The directory is filled in */
static FaultPlanted planted[] = {
    { "no-record", &write_record, NULL, FAULT_PWRITE, "*the record is lost*" },
    { "not-closed", &read_record, NULL, FAULT_CLOSE,
      "*1 descriptors leaked*" },
};

int main(int argc, char **argv)
{
    int ret;

    g_test_init(&argc, &argv, NULL);
    plain = faults_make_dir("/tmp/ram-reset-XXXXXX");
    huge = g_test_subprocess() ? NULL : mount_hugetlbfs(plain);
    g_test_add_func("/faults/hugefile-file", sweep_ram);
    g_test_add_func("/faults/hugefile-record", sweep_record);
    for (unsigned i = 0; i < G_N_ELEMENTS(planted); i++) {
        planted[i].param = plain;
        faults_add_planted(&planted[i]);
    }
    ret = g_test_run();
    if (huge) {
        unmount_hugetlbfs(huge);
    }
    g_free(huge);
    faults_remove_dir(plain);
    return ret;
}
