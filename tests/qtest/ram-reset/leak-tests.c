/*
 * RAM reset: many loads leave no mappings, files or memory behind
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/units.h"
#include "framework.h"

#define HIGH (1 * MiB)

typedef struct Case {
    const char *strategy;
    MemKind kind;
    uint64_t size;              /* for tests with a strategy */
} Case;

/* A leak would change one of these */
typedef struct Footprint {
    unsigned mappings, fds;
    uint64_t free_hugepages, reserved_hugepages;
    uint64_t ram_kib, process_kib;
} Footprint;

/* Excludes the stack and the guard page of each thread: some start late */
static unsigned mappings(Vm *vm)
{
    uint64_t threads, before;
    unsigned n;

    do {
        before = vm_status_kib(vm, "Threads");
        n = vm_mappings(vm);
        threads = vm_status_kib(vm, "Threads");
    } while (threads != before);
    return n - 2 * threads;
}

static Footprint footprint(Vm *vm)
{
    return (Footprint) {
        .mappings = mappings(vm),
        .fds = vm_fds(vm),
        .free_hugepages = hugepages("free"),
        .reserved_hugepages = hugepages("resv"),
        .ram_kib = vm_ram_kib(vm),
        .process_kib = vm_resident_kib(vm),
    };
}

static void dirty_and_load(Vm *vm, unsigned i)
{
    /* Each load has other pages, but as many hugepages */
    uint64_t first = HIGH + i * 4 * KiB, at;

    for (at = first; at < vm->size; at += vm->size / 64) {
        vm_fill(vm, at, 4 * KiB, i);
    }
    vm_load(vm, "clean");
    for (at = first; at < vm->size; at += vm->size / 64) {
        g_assert_cmphex(vm_byte(vm, at + 1), ==, 0);
    }
}

/* glibc caches no memory of threads that have ended */
static Vm *start_without_caches(const Case *c, const char *object)
{
    Vm *vm;

    setenv("MALLOC_ARENA_MAX", "1", 1);
    setenv("GLIBC_TUNABLES", "glibc.pthread.stack_cache_size=0", 1);
    vm = vm_start(c->kind, c->size, object);
    unsetenv("MALLOC_ARENA_MAX");
    unsetenv("GLIBC_TUNABLES");
    return vm;
}

static void test_nothing_leaks(const void *opaque)
{
    const Case *c = opaque;
    const unsigned loads = rounds(50, 18);
    /* Clearing in place leaves the 64 pages of each load resident */
    const uint64_t cleared_kib = (loads - 2) * 64 * 4;
    g_autofree char *object = vm_object(c->strategy, "");
    bool may_clear = (!strcmp(c->strategy, "memset") ||
                      g_str_has_prefix(c->strategy, "auto")) &&
                     c->kind != MEM_HUGETLB_FILE;
    Footprint second, last;
    Vm *vm;

    if (mem_skip(c->kind)) {
        return;
    }
    if (mem_page_size(c->kind) == 2 * MiB && hugepages("free") < 560) {
        g_test_skip("fewer than 560 hugepages of 2 MiB are free, raise "
                    "vm.nr_hugepages");
        return;
    }
    vm = start_without_caches(c, object);
    vm_save(vm, "clean");
    for (unsigned i = 1; i <= 2; i++) {
        dirty_and_load(vm, i);
    }
    second = footprint(vm);
    for (unsigned i = 3; i <= loads; i++) {
        dirty_and_load(vm, i);
    }
    last = footprint(vm);
    g_assert_cmpuint(last.mappings, ==, second.mappings);
    g_assert_cmpuint(last.fds, ==, second.fds);
    if (mem_page_size(c->kind) == 2 * MiB) {    /* otherwise others use them */
        g_assert_cmpuint(last.free_hugepages, ==, second.free_hugepages);
        g_assert_cmpuint(last.reserved_hugepages, ==,
                         second.reserved_hugepages);
    }
    g_assert_cmpuint(last.ram_kib, <=, second.ram_kib + cleared_kib);
    if (!may_clear) {
        g_assert_cmpuint(last.ram_kib, ==, second.ram_kib);
    }
    /*
     * QEMU's heap grows by 1.4 MiB in 200 loads, and by 1.9 without an object
     */
    g_assert_cmpuint(last.process_kib, <=, second.process_kib + 3 * 1024 +
                     (may_clear ? cleared_kib : 0));
    g_test_message("%u mappings, %u files, %" PRIu64 " free hugepages, "
                   "%" PRIu64 " KiB of RAM, %" PRIu64 " KiB in all",
                   last.mappings, last.fds, last.free_hugepages, last.ram_kib,
                   last.process_kib);
    vm_end(vm);
}

void add_leak_tests(bool with_hugepages)
{
    /* A fresh memfd needs more hugepages while the old one exists */
    static const Case leaks[] = {
        { "memset", MEM_ANON, GiB }, { "memset", MEM_MEMFD, GiB },
        { "madvise", MEM_ANON, GiB }, { "madvise", MEM_MEMFD, GiB },
        { "madvise", MEM_HUGETLB, GiB }, { "remap", MEM_ANON, GiB },
        { "remap", MEM_MEMFD, GiB }, { "remap", MEM_HUGETLB, 512 * MiB },
        { "hugefile", MEM_HUGETLB_FILE, GiB }, { "auto", MEM_ANON, GiB },
        { "auto", MEM_MEMFD, GiB },
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(leaks); i++) {
        g_autofree char *path = g_strdup_printf(
            "ram-reset/leak/many-loads/%s/%s", leaks[i].strategy,
            mem_name(leaks[i].kind));

        if (mem_is_huge(leaks[i].kind) == with_hugepages) {
            qtest_add_data_func(path, &leaks[i], test_nothing_leaks);
        }
    }
}
