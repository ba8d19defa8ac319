/*
 * Keep private mappings of a file when the file changes
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/cutils.h"
#include "qemu/main-loop.h"
#include "qemu/units.h"
#include "block/aio.h"
#include "system/ram-reset/block/file-lease.h"
#include "system/ram-reset/prim/prim.h"

#define LEASE_SIGNAL    SIGIO
#define COPY_AT_ONCE    (64 * MiB)

typedef struct Lease {
    int fd;
    FileLeaseBroken *broken;
} Lease;

/* Protected by the BQL, except for @bh */
static struct {
    GArray *held;               /* array of Lease; NULL before the first */
    QEMUBH *bh;
} lease;

/* @file: device and inode; they may differ from those of fstat() */
typedef struct Mapping {
    uint64_t start, end, offset;
    char access[5];
    char file[40];
} Mapping;

static bool lease_parse_mapping(const char *line, Mapping *m)
{
    char device[16];
    uint64_t inode;

    if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %15s %" SCNu64,
               &m->start, &m->end, m->access, &m->offset, device,
               &inode) != 6) {
        return false;
    }
    snprintf(m->file, sizeof(m->file), "%s %" PRIu64, device, inode);
    return true;
}

static GArray *lease_read_mappings(void)
{
    GArray *all = g_array_new(false, false, sizeof(Mapping));
    g_autofree char *text = NULL;
    g_auto(GStrv) lines = NULL;

    if (g_file_get_contents("/proc/self/maps", &text, NULL, NULL)) {
        lines = g_strsplit(text, "\n", -1);
    }
    for (unsigned i = 0; lines && lines[i]; i++) {
        Mapping m;

        if (lease_parse_mapping(lines[i], &m)) {
            g_array_append_val(all, m);
        }
    }
    return all;
}

/* Copies pages that are not zero from @start to @to */
static void lease_copy_pages(uint8_t *to, const uint8_t *start, uint64_t len)
{
    size_t page = qemu_real_host_page_size();

    for (uint64_t at = 0; at < len; at += page) {
        if (!buffer_is_zero(start + at, page)) {
            memcpy(to + at, start + at, page);
        }
    }
}

static int lease_replace_range(uint64_t start, uint64_t len)
{
    void *host = (void *)(uintptr_t)start;
    void *copy = mmap(NULL, len, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (copy == MAP_FAILED) {
        return -errno;
    }
    lease_copy_pages(copy, host, len);
    if (mremap(copy, len, len, MREMAP_MAYMOVE | MREMAP_FIXED,
               host) == MAP_FAILED) {
        int ret = -errno;

        munmap(copy, len);
        return ret;
    }
    return 0;
}

/* A hole in a copy takes no memory.  Reading it is valid: zero, if stored */
static int lease_replace_hole(uint64_t start, uint64_t len)
{
    return mmap((void *)(uintptr_t)start, len, PROT_READ,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
                0) == MAP_FAILED ? -errno : 0;
}

/* Returns the position of data at @at or behind it, at most @end */
static uint64_t lease_find_data(int fd, uint64_t at, uint64_t end)
{
    off_t data = lseek(fd, at, SEEK_DATA);

    if (data < 0) {
        return errno == ENXIO ? end : at;
    }
    return MIN(QEMU_ALIGN_DOWN(data, qemu_real_host_page_size()), end);
}

/* Memory of the guest may have been written to over a hole; a copy cannot */
static int lease_replace(int fd, const Mapping *m)
{
    bool is_copy = m->access[1] != 'w';
    uint64_t at = m->offset, end = m->offset + (m->end - m->start);
    int ret = 0;

    while (at < end && !ret) {
        uint64_t start = m->start + (at - m->offset);
        uint64_t data = is_copy ? lease_find_data(fd, at, end) : at;
        uint64_t len = data > at ? data - at : MIN(end - at, COPY_AT_ONCE);

        ret = data > at ? lease_replace_hole(start, len)
                        : lease_replace_range(start, len);
        at += len;
    }
    return ret;
}

typedef int LeaseFunction(int fd, const Mapping *m);

/* Calls @function, if not NULL, for each mapping; returns bytes, or -errno */
static int64_t lease_for_each(int fd, LeaseFunction *function)
{
    size_t page = qemu_real_host_page_size();
    void *probe = mmap(NULL, page, PROT_NONE, MAP_PRIVATE, fd, 0);
    g_autoptr(GArray) all = NULL;
    const char *file = NULL;
    int64_t bytes = 0;
    int ret = 0;

    if (probe == MAP_FAILED) {
        return -errno;
    }
    all = lease_read_mappings();
    for (unsigned i = 0; i < all->len; i++) {
        const Mapping *m = &g_array_index(all, Mapping, i);

        if (m->start <= (uintptr_t)probe && (uintptr_t)probe < m->end) {
            file = m->file;
        }
    }
    for (unsigned i = 0; file && i < all->len && !ret; i++) {
        const Mapping *m = &g_array_index(all, Mapping, i);

        if (m->access[3] == 'p' && m->access[0] == 'r' &&
            !strcmp(m->file, file)) {
            ret = function ? function(fd, m) : 0;
            bytes += m->end - m->start;
        }
    }
    munmap(probe, page);
    return !file ? -ENOENT : ret < 0 ? ret : bytes;
}

int64_t file_lease_mapped(int fd)
{
    return lease_for_each(fd, NULL);
}

/*
 * Whether the kernel still waits for us: it removes leases when it does not.
 * Times of the file show nothing, since touch sets them without a change.
 */
static bool lease_is_held(int fd)
{
    g_autofree char *text = NULL;
    g_auto(GStrv) lines = NULL;
    struct stat st;

    if (fstat(fd, &st) < 0 ||
        !g_file_get_contents("/proc/locks", &text, NULL, NULL)) {
        return true;
    }
    lines = g_strsplit(text, "\n", -1);
    for (unsigned i = 0; lines[i]; i++) {
        uint64_t inode;

        if (sscanf(lines[i], "%*d: LEASE %*s %*s %*d %*x:%*x:%" SCNu64,
                   &inode) == 1 && inode == st.st_ino) {
            return true;
        }
    }
    return false;
}

int file_lease_copy(int fd)
{
    int64_t bytes = lease_for_each(fd, lease_replace);

    return bytes < 0 ? bytes : lease_is_held(fd) ? 0 : -ESTALE;
}

static void lease_end(unsigned nr)
{
    Lease l = g_array_index(lease.held, Lease, nr);

    l.broken(l.fd);
    /* Nothing takes a lease meanwhile */
    g_array_remove_index_fast(lease.held, nr);
    fcntl(l.fd, F_SETLEASE, F_UNLCK);
    close(l.fd);
}

static void lease_look(void *opaque)
{
    for (unsigned i = 0; i < lease.held->len; ) {
        if (fcntl(g_array_index(lease.held, Lease, i).fd,
                  F_GETLEASE) == F_RDLCK) {
            i++;
        } else {
            lease_end(i);
        }
    }
}

/* A nested poll for I/O must not do it */
static void lease_signal(int signal)
{
    qemu_bh_schedule(lease.bh);
}

static void lease_start(void)
{
    struct sigaction action = { .sa_handler = lease_signal };

    if (!lease.held) {
        lease.held = g_array_new(false, false, sizeof(Lease));
        lease.bh = aio_bh_new(iohandler_get_aio_context(), lease_look, NULL);
        sigaction(LEASE_SIGNAL, &action, NULL);
    }
}

int file_lease_take(int fd, FileLeaseBroken *broken)
{
    Lease l = { .fd = fd, .broken = broken };

    assert(bql_locked());
    if (!prim_is_local_file(fd)) {
        return -ENOTSUP;
    }
    lease_start();
    if (fcntl(fd, F_SETSIG, LEASE_SIGNAL) < 0 ||
        fcntl(fd, F_SETLEASE, F_RDLCK) < 0) {
        return -errno;
    }
    g_array_append_val(lease.held, l);
    return 0;
}

void file_lease_give_back(int fd)
{
    for (unsigned i = 0; lease.held && i < lease.held->len; ) {
        if (prim_is_same_file(g_array_index(lease.held, Lease, i).fd, fd)) {
            lease_end(i);
        } else {
            i++;
        }
    }
}
