/*
 * prim when the kernel refuses any of its calls
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <linux/mempolicy.h>
#include "faults.h"
#include "ram.h"

#define OLD 0xa5
#define NEW 0x5a

/* @covered: the pages that a walk has found */
typedef struct State {
    Ram *ram;
    bool *covered;
    bool has_policy;
} State;

static State *state_new(const Kind *kind)
{
    State *s = g_new0(State, 1);

    s->ram = ram_new(kind, "ram", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    s->covered = g_new0(bool, ram_pages(s->ram));
    return s;
}

static void teardown(void *opaque)
{
    State *s = opaque;

    ram_free(s->ram);
    g_free(s->covered);
    g_free(s);
}

static void teardown_lacking(void *state)
{
    faults_lack(FAULT_KINDS);
    teardown(state);
}

static void assert_page(const State *s, uint64_t page, uint8_t either,
                        uint8_t or)
{
    if (!ram_page_is(s->ram, page, either) && !ram_page_is(s->ram, page, or)) {
        faults_wrong("wrong byte in page %u", (unsigned)page);
    }
}

static void assert_pages(const State *s, uint8_t either, uint8_t or)
{
    for (uint64_t i = 0; i < ram_pages(s->ram); i++) {
        assert_page(s, i, either, or);
    }
}

static void *setup_full(const void *kind)
{
    State *s = state_new(kind);

    memset(s->ram->map.host, OLD, s->ram->map.len);
    return s;
}

static bool run_drop(void *opaque)
{
    State *s = opaque;
    PrimMap *map = &s->ram->map;

    return prim_discard(map, prim_backing(map), 0, map->len) == 0;
}

static void check_zero(void *opaque, bool ok)
{
    assert_pages(opaque, 0, ok ? 0 : OLD);
}

/* The mapping must be of the file, which is searched for data */
static void check_fresh(void *opaque, bool ok)
{
    State *s = opaque;
    PrimMap *map = &s->ram->map;
    uint8_t was = map->host[0], got;

    if (!all_are(s->ram, 0) && (ok || !all_are(s->ram, OLD))) {
        faults_wrong("wrong byte");
    }
    if (map->shared && map->fd >= 0) {
        map->host[0] = NEW;
        g_assert_cmpint(pread(map->fd, &got, 1, map->fd_offset), ==, 1);
        if (got != NEW) {
            faults_wrong("the descriptor is of another file than the mapping");
        }
        map->host[0] = was;
    }
    if (map->fd >= 0) {
        g_assert_cmpint(fcntl(map->fd, F_GETFD), ==, FD_CLOEXEC);
    }
}

static void *setup_policy(const void *kind)
{
    State *s = setup_full(kind);
    unsigned long node0 = 1;

    s->has_policy = syscall(SYS_mbind, s->ram->map.host, s->ram->map.len,
                            MPOL_PREFERRED, &node0, 8 * sizeof(node0), 0) == 0;
    return s;
}

/* There may be a policy to lose; if it cannot be read, nobody has set one */
static void check_policy(const State *s)
{
    int err = faults_error(FAULT_SYSCALL), mode = -1;

    if (err == ENOSYS || err == EPERM || !s->has_policy) {
        return;
    }
    g_assert_cmpint(syscall(SYS_get_mempolicy, &mode, NULL, 0,
                            s->ram->map.host, MPOL_F_ADDR), ==, 0);
    if (mode != MPOL_PREFERRED) {
        faults_wrong("the NUMA policy is lost");
    }
}

static void check_fresh_and_policy(void *opaque, bool ok)
{
    State *s = opaque;

    check_fresh(s, ok);
    if (ok || all_are(s->ram, OLD)) {
        check_policy(s);
    } else {
        s->has_policy = false;
    }
}

static bool run_fresh(void *opaque)
{
    State *s = opaque;
    PrimFresh fresh;
    int ret = prim_fresh_map(&s->ram->map, &fresh) ?:
              prim_fresh_swap(&s->ram->map, &fresh);

    if (ret == -EFAULT) {
        faults_wrong("says that there is no memory any more");
    }
    return ret == 0;
}

/* Without mincore(), a process cannot know that nothing is mapped */
static void *setup_no_mincore(const void *kind)
{
    faults_lack(FAULT_MINCORE);
    return setup_full(kind);
}

/* Some pages are present; the others must not be read */
static void *setup_sparse(const void *kind)
{
    State *s = state_new(kind);
    size_t size = s->ram->map.page_size;

    for (uint64_t i = 1; i < ram_pages(s->ram); i += 1 + i / 2) {
        memset(s->ram->map.host + i * size, OLD, size);
    }
    return s;
}

/* Written by write(), which does not change the page table */
static void *setup_written(const void *kind)
{
    State *s = state_new(kind);
    PrimMap *map = &s->ram->map;
    char byte = OLD;

    for (uint64_t i = 1; i < ram_pages(s->ram); i += 1 + i / 2) {
        if (((const Kind *)kind)->huge) {
            uint8_t *page = mmap(NULL, map->page_size, PROT_WRITE, MAP_SHARED,
                                 map->fd, map->fd_offset + i * map->page_size);

            memset(page, OLD, map->page_size);
            munmap(page, map->page_size);
        } else {
            g_assert_cmpint(pwrite(map->fd, &byte, 1,
                                   map->fd_offset + i * map->page_size), ==, 1);
        }
    }
    return s;
}

/* Linux before 6.7 */
static void *setup_no_scan(const void *kind)
{
    faults_lack(FAULT_IOCTL);
    return setup_sparse(kind);
}

static bool run_walk(void *opaque)
{
    State *s = opaque;
    PrimMap *map = &s->ram->map;
    uint64_t start, end, last = 0;
    PrimDataIter it;

    memset(s->covered, false, ram_pages(s->ram));
    prim_data_begin(&it, map, prim_backing(map), 0, map->len);
    while (prim_data_next(&it, &start, &end)) {
        g_assert_cmpuint(start, >=, last);
        g_assert_cmpuint(end, >, start);
        g_assert_cmpuint(end, <=, map->len);
        memset(s->covered + start / map->page_size, true,
               (end - start) / map->page_size);
        last = end;
    }
    prim_data_end(&it);
    return true;
}

static void check_walk(void *opaque, bool ok)
{
    State *s = opaque;

    g_assert_true(ok);
    for (uint64_t i = 0; i < ram_pages(s->ram); i++) {
        if (!s->covered[i] && !ram_page_is(s->ram, i, 0)) {
            faults_wrong("page %u has data and was passed over", (unsigned)i);
        }
    }
}

static const FaultTest discard = { setup_full, run_drop, check_zero, teardown };
static const FaultTest fresh = { setup_policy, run_fresh,
                                 check_fresh_and_policy, teardown };
static const FaultTest fresh_no_mincore = { setup_no_mincore, run_fresh,
                                            check_fresh, teardown_lacking };
static const FaultTest walk = { setup_sparse, run_walk, check_walk, teardown };
static const FaultTest walk_full = { setup_full, run_walk, check_walk,
                                     teardown };
static const FaultTest walk_written = { setup_written, run_walk, check_walk,
                                        teardown };
static const FaultTest walk_no_scan = { setup_no_scan, run_walk, check_walk,
                                        teardown_lacking };

typedef struct Sweep {
    char *name;
    const FaultTest *test;
    const Kind *kind;
} Sweep;

static void sweep(gconstpointer data)
{
    const Sweep *s = data;

    if (possible(s->kind)) {
        faults_sweep(s->name, s->test, s->kind);
    }
}

static void add(const char *name, const FaultTest *test, const Kind *kind)
{
    Sweep *s = g_new(Sweep, 1);
    g_autofree char *path = NULL;

    *s = (Sweep) { g_strdup_printf("%s/%s", name, kind->name), test, kind };
    path = g_strdup_printf("/faults/%s", s->name);
    g_test_add_data_func(path, s, sweep);
}

/* Pages of 4 KiB, anonymous and of a memfd */
static const FaultPlanted planted[] = {
    { "not-discarded", &discard, &kinds[0], FAULT_MADVISE, "*wrong byte*" },
    { "not-punched", &discard, &kinds[2], FAULT_FALLOCATE, "*wrong byte*" },
    { "not-the-same", &fresh, &kinds[2], FAULT_DUP3, "*of another file*" },
    { "not-closed", &walk, &kinds[0], FAULT_CLOSE, "*1 descriptors leaked*" },
    { "not-unmapped", &fresh, &kinds[2], FAULT_MUNMAP,
      "*bytes of mappings leaked*" },
    { "not-told-of", &walk, &kinds[0], FAULT_IOCTL,
      "*has data and was passed over*" },
};

static const FaultKind seen[] = {
    FAULT_CLOSE, FAULT_DUP3, FAULT_FALLOCATE, FAULT_FCNTL, FAULT_FSTAT,
    FAULT_FSTATFS, FAULT_FTRUNCATE, FAULT_GETRLIMIT, FAULT_IOCTL, FAULT_LSEEK,
    FAULT_MADVISE, FAULT_MEMFD_CREATE, FAULT_MMAP, FAULT_MREMAP, FAULT_MUNMAP,
    FAULT_OPEN, FAULT_PREAD, FAULT_READLINK, FAULT_REALLOC, FAULT_SYSCALL,
    FAULT_KINDS,
};

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    for (unsigned i = 0; i < NR_KINDS; i++) {
        if (kinds[i].shared || !kinds[i].memfd) {
            add("discard", &discard, &kinds[i]);
        }
        add("fresh", &fresh, &kinds[i]);
        add("walk", &walk, &kinds[i]);
        add("walk-full", &walk_full, &kinds[i]);
        if (!kinds[i].huge) {
            add("fresh-no-mincore", &fresh_no_mincore, &kinds[i]);
            add("walk-no-scan", &walk_no_scan, &kinds[i]);
        }
        if (kinds[i].shared && kinds[i].memfd) {
            add("walk-written", &walk_written, &kinds[i]);
        }
    }
    for (unsigned i = 0; i < G_N_ELEMENTS(planted); i++) {
        faults_add_planted(&planted[i]);
    }
    faults_add_seen(seen);
    return g_test_run();
}
