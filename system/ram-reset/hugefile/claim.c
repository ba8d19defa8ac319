/*
 * ram-reset-hugefile: claim a file before it is mapped
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/bitmap.h"
#include "qemu/mmap-alloc.h"
#include "qemu/rcu.h"
#include "system/ram-reset/hugefile/file.h"
#include "system/ram-reset/hugefile/hugefile.h"
#include "system/ram-reset/prim/trusted-file.h"
#include "system/ram-reset/report.h"

void hugefile_error_prepend(RamResetHugefile *hf, const char *path,
                            Error **errp)
{
    error_prepend(errp, "cannot use '%s' for memory backend '%s': ", path,
                  RAM_RESET(hf)->memdev);
    ram_reset_error_prepend(RAM_RESET(hf), errp);
}

/* Other users may read the directory, and no more */
static bool is_own_dir(const char *dir)
{
    g_autofree char *refusal = NULL;
    struct stat st;

    if (lstat(dir, &st) < 0) {
        return false;
    }
    refusal = trusted_file_refusal(&st, TRUST_DIRECTORY | TRUST_READERS);
    return !refusal;
}

/*
 * The default depends on the RAM file's name, so that two QEMUs find the same
 * record
 */
static char *default_state(const char *path, Error **errp)
{
    const char *run = g_getenv("XDG_RUNTIME_DIR");
    g_autofree char *dir =
        g_build_filename(run && g_path_is_absolute(run) ? run : "/run",
                         "qemu-ram-reset", NULL);
    g_autofree char *full = g_canonicalize_filename(path, NULL);
    g_autofree char *sum = NULL, *base = NULL, *name = NULL;

    if (mkdir(dir, 0700) < 0 && errno != EEXIST) {
        error_setg_errno(errp, errno, "cannot create '%s'", dir);
        error_append_hint(errp, "Give another place with state=FILE.\n");
        return NULL;
    }
    if (!is_own_dir(dir)) {
        error_setg(errp, "'%s' is not a directory that only this user may "
                   "write to", dir);
        error_append_hint(errp, "Give another place with state=FILE.\n");
        return NULL;
    }
    sum = g_compute_checksum_for_string(G_CHECKSUM_SHA256, full, -1);
    base = g_path_get_basename(full);
    name = g_strdup_printf("%.32s-%.16s.state", base, sum);
    return g_build_filename(dir, name, NULL);
}

static bool is_same_path(const char *one, const char *other)
{
    g_autofree char *a = g_canonicalize_filename(one, NULL);
    g_autofree char *b = g_canonicalize_filename(other, NULL);

    return !strcmp(a, b);
}

static bool open_state(RamResetHugefile *hf, Error **errp)
{
    ERRP_GUARD();

    if (!hf->info.state) {
        hf->info.state = hf->state ? g_strdup(hf->state)
                                   : default_state(hf->path, errp);
        if (!hf->info.state) {
            ram_reset_error_prepend(RAM_RESET(hf), errp);
            return false;
        }
    }
    if (is_same_path(hf->info.state, hf->path)) {
        error_setg(errp, "state= is the same file");
        hugefile_error_prepend(hf, hf->path, errp);
        return false;
    }
    hf->state_fd = hugefile_record_open(hf->info.state, errp);
    if (hf->state_fd < 0) {
        hugefile_error_prepend(hf, hf->info.state, errp);
        return false;
    }
    return true;
}

/* Whether the record shows which pages of the file are clean */
static bool record_is_trusted(const HugeRecord *rec, const struct stat *st,
                              uint64_t page_size, Error **errp)
{
    g_autofree char *boot_id = hugefile_record_boot_id();

    if (!rec->pages) {
        error_setg(errp, "there is no record of it");
    } else if (rec->in_use) {
        error_setg(errp, "process %" PRId64 " did not exit cleanly", rec->pid);
    } else if (!boot_id || strcmp(rec->boot_id, boot_id)) {
        error_setg(errp, "the host has been restarted since");
    } else if (rec->device != st->st_dev || rec->inode != st->st_ino ||
               rec->page_size != page_size ||
               rec->pages != st->st_size / page_size ||
               !trusted_file_is_ours(st)) {
        error_setg(errp, "the record is of another file");
    } else if (rec->access_time != hugefile_file_access_time(st)) {
        error_setg(errp, "another process has mapped the file since");
    } else {
        return true;
    }
    return false;
}

static bool read_record(RamResetHugefile *hf, HugeRecord *rec,
                        const struct stat *st, uint64_t page_size,
                        Error **errp)
{
    ERRP_GUARD();

    if (hf->notice < 0) {
        error_setg(errp, "the kernel cannot watch the file (inotify)");
        return false;
    }
    if (!hugefile_record_read(hf->state_fd, rec, errp)) {
        ram_reset_warn(RAM_RESET(hf), "'%s' is damaged: %s; all of '%s' is "
                       "cleared", hf->info.state, error_get_pretty(*errp),
                       hf->path);
        return false;
    }
    return record_is_trusted(rec, st, page_size, errp);
}

/* Fill in @hf->old for the left-over file; the file may have holes */
static void find_old_pages(RamResetHugefile *hf, const struct stat *st,
                           uint64_t page_size)
{
    uint64_t pages = st->st_size / page_size;
    HugeRecord rec = { 0 };
    Error *err = NULL;

    hf->info.reused_pages = (uint64_t)st->st_blocks * 512 / page_size;
    if (read_record(hf, &rec, st, page_size, &err)) {
        hf->old = g_steal_pointer(&rec.dirty);
        hf->info.record = g_strdup("the last run exited cleanly");
    } else {
        hf->old = bitmap_new(pages);
        bitmap_set(hf->old, 0, pages);
        hf->info.record = g_strdup_printf("all pages may be dirty: %s",
                                          error_get_pretty(err));
        error_free(err);
    }
    hugefile_record_clear(&rec);
}

/*
 * Open the left-over file, or remove it if unlink= says so; locks it as
 * @hf->claim_fd
 */
static bool claim_left_over(RamResetHugefile *hf, uint64_t size, Error **errp)
{
    struct stat st;

    if (!hugefile_file_open(hf->path, &hf->claim_fd, errp)) {
        return false;
    }
    if (hf->claim_fd < 0) {
        return true;
    }
    if (fstat(hf->claim_fd, &st) < 0) {
        error_setg(errp, "%s", strerror(errno));
        return false;
    }
    /* A file of size 0 was never finished */
    if (hf->unlink != RAM_RESET_UNLINK_NEVER || !st.st_size) {
        if (unlink(hf->path) < 0) {
            error_setg(errp, "the left-over file cannot be removed: %s",
                       strerror(errno));
            return false;
        }
        close(hf->claim_fd);
        hf->claim_fd = -1;
        return true;
    }
    if (st.st_size != size) {
        error_setg(errp, "it has %" PRIu64 " bytes, not %" PRIu64 "; remove "
                   "it, or let unlink=existing do that", (uint64_t)st.st_size,
                   size);
        return false;
    }
    /* In this order no process can use the file unnoticed in between */
    hf->notice = hugefile_file_notice(hf->claim_fd);
    if (!trusted_file_is_ours_alone(hf->claim_fd, false) ||
        fchmod(hf->claim_fd, 0600) < 0 || fstat(hf->claim_fd, &st) < 0) {
        error_setg(errp, "another process has it open");
        return false;
    }
    find_old_pages(hf, &st, qemu_fd_getpagesize(hf->claim_fd));
    return true;
}

static bool claim_file(RamResetHugefile *hf, uint64_t size, Error **errp)
{
    if (!claim_left_over(hf, size, errp)) {
        return false;
    }
    if (hf->claim_fd < 0) {
        if (!hugefile_file_create(hf->path, size, &hf->claim_fd, errp)) {
            return false;
        }
        hf->created = true;
        hf->notice = hugefile_file_notice(hf->claim_fd);
        hf->info.record = g_strdup("the file is new");
    }
    return hugefile_file_reserve(hf->claim_fd, size,
                                 qemu_fd_getpagesize(hf->claim_fd), errp);
}

/* Nobody may write to the file before the record says "in use" */
static bool write_in_use(RamResetHugefile *hf, Error **errp)
{
    ERRP_GUARD();
    HugeRecord *rec = &hf->record;
    struct stat st;
    int ret;

    if (fstat(hf->claim_fd, &st) < 0) {
        error_setg(errp, "%s", strerror(errno));
        hugefile_error_prepend(hf, hf->path, errp);
        return false;
    }
    *rec = (HugeRecord) {
        .in_use = true,
        .pid = getpid(),
        .boot_id = hugefile_record_boot_id(),
        .device = st.st_dev,
        .inode = st.st_ino,
        .page_size = qemu_fd_getpagesize(hf->claim_fd),
    };
    rec->pages = st.st_size / rec->page_size;
    rec->dirty = bitmap_new(rec->pages);
    bitmap_set(rec->dirty, 0, rec->pages);
    ret = hugefile_record_write(hf->state_fd, rec);
    if (ret < 0) {
        error_setg(errp, "%s", strerror(-ret));
        hugefile_error_prepend(hf, hf->info.state, errp);
    }
    return ret == 0;
}

void hugefile_drop_claim(RamResetHugefile *hf)
{
    if (hf->claim_fd >= 0) {
        if (hf->created) {
            unlink(hf->path);
        }
        close(hf->claim_fd);
        hf->claim_fd = -1;
    }
    if (hf->notice >= 0) {
        close(hf->notice);
        hf->notice = -1;
    }
    hf->created = false;
    if (hf->state_fd >= 0) {
        close(hf->state_fd);
        hf->state_fd = -1;
    }
    hugefile_record_clear(&hf->record);
    g_clear_pointer(&hf->old, g_free);
    g_clear_pointer(&hf->path, g_free);
    g_clear_pointer(&hf->id, g_free);
    g_free(hf->info.file);
    g_free(hf->info.state);
    g_free(hf->info.record);
    memset(&hf->info, 0, sizeof(hf->info));
}

RamResetHugefile *hugefile_by_memdev(HostMemoryBackend *backend)
{
    const char *id = object_get_canonical_path_component(OBJECT(backend));
    g_autoptr(GPtrArray) objs = ram_reset_objects();

    for (unsigned i = 0; i < objs->len; i++) {
        if (object_dynamic_cast(objs->pdata[i], TYPE_RAM_RESET_HUGEFILE) &&
            !g_strcmp0(RAM_RESET(objs->pdata[i])->memdev, id)) {
            return RAM_RESET_HUGEFILE(objs->pdata[i]);
        }
    }
    return NULL;
}

/* Whether the properties of @backend allow a file that outlives QEMU */
static bool check_backend(HostMemoryBackend *backend, Error **errp)
{
    Object *obj = OBJECT(backend);

    if (!object_dynamic_cast(obj, "memory-backend-file")) {
        error_setg(errp, "it has no file; use memory-backend-file");
    } else if (!backend->share) {
        error_setg(errp, "share=off would not put the guest's pages into the "
                   "file; use share=on");
    } else if (!backend->reserve) {
        error_setg(errp, "with reserve=off the host may run out of hugepages "
                   "while the guest runs; use reserve=on");
    } else if (object_property_get_bool(obj, "readonly", NULL)) {
        error_setg(errp, "memory with readonly=on cannot be cleared");
    } else if (object_property_get_uint(obj, "offset", NULL)) {
        error_setg(errp, "offset= is not supported: a file must belong to one "
                   "backend");
    } else if (runstate_check(RUN_STATE_INMIGRATE)) {
        error_setg(errp, "with -incoming the memory may be another QEMU's");
    } else {
        return true;
    }
    return false;
}

bool hugefile_claim(RamResetHugefile *hf, HostMemoryBackend *backend,
                    Error **errp)
{
    ERRP_GUARD();

    if (hf->rb) {
        /*
         * This block is of a former backend with the same id; the memory map
         * drops it first
         */
        drain_call_rcu();
    }
    if (hf->reclaiming) {
        drain_call_rcu();
        hf->reclaiming = false;
    }
    if (hf->rb) {
        ram_reset_error(RAM_RESET(hf), errp, "the memory of the memory backend "
                        "that was called '%s' before is still being removed; "
                        "try again", RAM_RESET(hf)->memdev);
        return false;
    }
    if (!check_backend(backend, errp)) {
        error_prepend(errp, "%s '%s' does not go with memory backend '%s': ",
                      TYPE_RAM_RESET_HUGEFILE, ram_reset_id(RAM_RESET(hf)),
                      RAM_RESET(hf)->memdev);
        return false;
    }
    hugefile_drop_claim(hf);
    hf->id = g_strdup(ram_reset_id(RAM_RESET(hf)));
    hf->path = object_property_get_str(OBJECT(backend), "mem-path", NULL);
    if (!hf->path) {
        return true;    /* the backend reports this */
    }
    hf->info.file = g_strdup(hf->path);
    if (!open_state(hf, errp)) {
        hugefile_drop_claim(hf);
        return false;
    }
    if (!claim_file(hf, backend->size, errp)) {
        hugefile_error_prepend(hf, hf->path, errp);
        hugefile_drop_claim(hf);
        return false;
    }
    if (!write_in_use(hf, errp)) {
        hugefile_drop_claim(hf);
        return false;
    }
    return true;
}
