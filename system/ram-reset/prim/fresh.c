/*
 * prim: replace memory by fresh memory at the same address
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset/prim/internal.h"
#include <linux/mempolicy.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#ifndef MFD_HUGE_SHIFT
#define MFD_HUGE_SHIFT 26
#endif

#define MEMFD_LINK "/memfd:"
#define DELETED    " (deleted)"

/* Store the name that @fd was created with in @name */
static bool memfd_name(int fd, char *name, size_t size)
{
    char path[64];
    ssize_t n;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    n = readlink(path, name, size - 1);
    if (n < 0) {
        return false;
    }
    name[n] = '\0';
    if (strncmp(name, MEMFD_LINK, strlen(MEMFD_LINK))) {
        return false;
    }
    n -= strlen(MEMFD_LINK);
    memmove(name, name + strlen(MEMFD_LINK), n + 1);
    if (n >= (ssize_t)strlen(DELETED) &&
        !strcmp(name + n - strlen(DELETED), DELETED)) {
        name[n - strlen(DELETED)] = '\0';
    }
    return true;
}

bool prim_is_memfd(int fd)
{
    char name[PATH_MAX];
    struct stat st;

    return fstat(fd, &st) == 0 && st.st_nlink == 0 &&
           memfd_name(fd, name, sizeof(name));
}

static int fresh_memfd(const PrimMap *map)
{
    unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    char name[PATH_MAX];
    PrimLimit limit;
    struct stat st;
    int fd, ret;

    if (!COUNT(map, memfd_name(map->fd, name, sizeof(name)))) {
        errno = EINVAL;
        return -1;
    }
    if (prim_is_hugetlb(map)) {
        flags |= MFD_HUGETLB |
                 __builtin_ctzll(map->page_size) << MFD_HUGE_SHIFT;
    }
    if (COUNT(map, fstat(map->fd, &st)) < 0) {
        return -1;
    }
    fd = COUNT(map, memfd_create(name, flags));
    if (fd < 0) {
        return -1;
    }
    prim_limit_begin(&limit);
    ret = COUNT(map, ftruncate(fd, st.st_size));
    prim_limit_end(&limit);
    if (ret < 0) {
        int err = errno;

        close(fd);
        errno = err;
        return -1;
    }
    return fd;
}

static uint8_t *fresh_mmap(const PrimMap *map, int fd)
{
    int flags = map->shared ? MAP_SHARED : MAP_PRIVATE;

    flags |= fd < 0 ? MAP_ANONYMOUS : 0;
    flags |= map->noreserve ? MAP_NORESERVE : 0;
    return COUNT(map, mmap(NULL, map->len, PROT_READ | PROT_WRITE, flags, fd,
                           fd < 0 ? 0 : map->fd_offset));
}

/* Whether there are too few hugepages to map @map a second time */
static bool pool_is_short(const PrimMap *map)
{
    void *p;

    if (!prim_is_hugetlb(map) || !map->shared || map->noreserve) {
        return false;
    }
    p = COUNT(map, mmap(NULL, map->len, PROT_NONE, MAP_SHARED | MAP_NORESERVE,
                        map->fd, map->fd_offset));
    if (p == MAP_FAILED) {
        return false;
    }
    COUNT(map, munmap(p, map->len));
    return true;
}

/* Hugepages that are reserved but were never touched stay with the old file */
static uint8_t *fresh_mmap_instead(const PrimMap *map, int fd)
{
    uint8_t *host;

    COUNT(map, fallocate(map->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                         map->fd_offset, map->len));
    host = fresh_mmap(map, fd);
    if (host == MAP_FAILED) {
        prim_reserve_hugepages(map, 0, map->len);
        errno = ENOMEM;
    }
    return host;
}

static int copy_seals(const PrimMap *map, int fd)
{
    int seals = COUNT(map, fcntl(map->fd, F_GET_SEALS));

    /*
     * A file that does not allow sealing has F_SEAL_SEAL: there are no seals to
     * add
     */
    return seals < 0 ? 0 : COUNT(map, fcntl(fd, F_ADD_SEALS, seals));
}

static int close_fresh(const PrimMap *map, const PrimFresh *fresh, int ret)
{
    if (fresh->host != MAP_FAILED) {
        COUNT(map, munmap(fresh->host, map->len));
    }
    if (fresh->fd >= 0) {
        COUNT(map, close(fresh->fd));
    }
    return ret;
}

int prim_fresh_map(const PrimMap *map, PrimFresh *fresh)
{
    fresh->fd = map->fd < 0 ? -1 : fresh_memfd(map);
    if (map->fd >= 0 && fresh->fd < 0) {
        return -errno;
    }
    fresh->host = fresh_mmap(map, fresh->fd);
    if (fresh->host == MAP_FAILED && errno == ENOMEM) {
        if (pool_is_short(map)) {
            fresh->host = fresh_mmap_instead(map, fresh->fd);
        }
        errno = ENOMEM;
    }
    return fresh->host == MAP_FAILED ? close_fresh(map, fresh, -errno) : 0;
}

static bool is_mapped(const PrimMap *map)
{
    unsigned char vec[1];

    return mincore(map->host, prim_base_page_size(), vec) == 0 ||
           errno != ENOMEM;
}

typedef struct Policy {
    int mode;
    unsigned long nodes[1024 / (8 * sizeof(long))];
} Policy;

/* There is no policy if the kernel lacks NUMA, or does not let us use it */
static int get_numa_policy(const PrimMap *map, Policy *policy)
{
    if (COUNT(map, syscall(SYS_get_mempolicy, &policy->mode, policy->nodes,
                           8 * sizeof(policy->nodes), map->host,
                           MPOL_F_ADDR)) < 0) {
        policy->mode = MPOL_DEFAULT;
        return errno == ENOSYS || errno == EPERM ? 0 : -1;
    }
    return 0;
}

static int set_numa_policy(const PrimMap *map, void *host, const Policy *policy)
{
    if (policy->mode == MPOL_DEFAULT) {
        return 0;
    }
    return COUNT(map, syscall(SYS_mbind, host, map->len, policy->mode,
                              policy->nodes, 8 * sizeof(policy->nodes), 0));
}

static void *map_over(const PrimMap *map, int fd)
{
    int flags = MAP_FIXED | (map->shared ? MAP_SHARED : MAP_PRIVATE) |
                (map->noreserve ? MAP_NORESERVE : 0);

    return COUNT(map, mmap(map->host, map->len, PROT_READ | PROT_WRITE, flags,
                           fd, map->fd_offset));
}

/*
 * If mmap() over the old mapping fails, it leaves a hole.  It does not fail for
 * a file: @fresh has shown that the file can be mapped, and holds all
 * reservations.  Anonymous memory counts against the host's limits, so that
 * @fresh is moved instead.
 */
static void *fresh_replace(const PrimMap *map, const PrimFresh *fresh)
{
    return fresh->fd >= 0
           ? map_over(map, fresh->fd)
           : COUNT(map, mremap(fresh->host, map->len, map->len,
                               MREMAP_MAYMOVE | MREMAP_FIXED, map->host));
}

/*
 * dup3() fails only for this reason, and must not fail once RAM has been mapped
 */
static bool fd_is_allowed(const PrimMap *map)
{
    struct rlimit limit;

    return COUNT(map, getrlimit(RLIMIT_NOFILE, &limit)) == 0 &&
           limit.rlim_cur > (rlim_t)map->fd;
}

/*
 * Add seals last, since one of them forbids mapping the file.  If the
 * descriptor number cannot be replaced, map the old file again, so that
 * descriptor and memory are still of the same file.
 */
static int fresh_replace_file(const PrimMap *map, PrimFresh *fresh)
{
    int flags = COUNT(map, fcntl(map->fd, F_GETFD));
    int ret = copy_seals(map, fresh->fd) < 0 ? -errno : 0;
    int fd;

    do {
        fd = COUNT(map, dup3(fresh->fd, map->fd,
                             flags & FD_CLOEXEC ? O_CLOEXEC : 0));
    } while (fd < 0 && errno == EINTR);
    if (fd < 0) {
        ret = -errno;
        ret = map_over(map, map->fd) == MAP_FAILED ? -EFAULT : ret;
    }
    return close_fresh(map, fresh, ret);
}

/*
 * Find out whether the policy can be set before anything has changed.  A policy
 * moves with anonymous memory, but not with a file on hugetlbfs.
 */
int prim_fresh_swap(const PrimMap *map, PrimFresh *fresh)
{
    Policy policy = { 0 };
    int ret;

    if (fresh->fd >= 0 && !fd_is_allowed(map)) {
        return close_fresh(map, fresh, -EMFILE);
    }
    if (get_numa_policy(map, &policy) < 0 ||
        set_numa_policy(map, fresh->host, &policy) < 0) {
        return close_fresh(map, fresh, -errno);
    }
    if (fresh_replace(map, fresh) == MAP_FAILED) {
        ret = -errno;
        return close_fresh(map, fresh, is_mapped(map) ? ret : -EFAULT);
    }
    if (fresh->fd < 0) {
        return 0;
    }
    ret = fresh_replace_file(map, fresh);
    return set_numa_policy(map, map->host, &policy) < 0 && !ret ? -errno : ret;
}

/*
 * Move anonymous memory: mapping it anew would count against the host's limits
 */
static bool overlay_zero(const PrimMap *map, uint8_t *host, uint64_t len,
                         int flags)
{
    void *p = COUNT(map, mmap(NULL, len, PROT_READ | PROT_WRITE,
                              flags | MAP_ANONYMOUS, -1, 0));

    if (p == MAP_FAILED) {
        return false;
    }
    if (COUNT(map, mremap(p, len, len, MREMAP_MAYMOVE | MREMAP_FIXED,
                          host)) == MAP_FAILED) {
        int err = errno;

        munmap(p, len);
        errno = err;
        return false;
    }
    return true;
}

static bool overlay_range(const PrimMap *map, int fd, uint64_t fd_offset,
                          const PrimRange *range)
{
    int flags = MAP_PRIVATE | (map->noreserve ? MAP_NORESERVE : 0);
    uint8_t *host = map->host + range->start;

    return fd < 0
           ? overlay_zero(map, host, range->len, flags)
           : COUNT(map, mmap(host, range->len, PROT_READ | PROT_WRITE,
                             flags | MAP_FIXED, fd,
                             fd_offset + range->start)) != MAP_FAILED;
}

int prim_overlay(const PrimMap *map, int fd, uint64_t fd_offset,
                 const PrimRange *ranges, size_t nr)
{
    for (size_t i = 0; i < nr; i++) {
        if (!overlay_range(map, fd, fd_offset, &ranges[i])) {
            int ret = -errno;
            PrimMap at = { .host = map->host + ranges[i].start };

            return is_mapped(&at) ? ret : -EFAULT;
        }
    }
    return 0;
}
