/*
 * RAM reset: a load changes no attribute of a RAM block
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <sys/mman.h>
#include "qemu/units.h"
#include "qobject/qdict.h"
#include "framework.h"

#define SIZE (16 * MiB)
#define HIGH (1 * MiB)

typedef struct Case {
    const char *strategy;
    MemKind kind;
} Case;

static const char *backend_type(MemKind kind)
{
    return kind == MEM_ANON ? "memory-backend-ram"
         : kind == MEM_MEMFD ? "memory-backend-memfd,share=on"
         : "memory-backend-memfd,share=on,hugetlb=on,hugetlbsize=2M";
}

/* The machine's RAM is a backend with more properties, @props, than usual */
static Vm *vm_with_props(const Case *c, const char *props, const char *machine)
{
    g_autofree char *object = vm_object(c->strategy, "");
    g_autofree char *extra =
        g_strdup_printf("%s -object %s,id=special,size=16m%s "
                        "-machine memory-backend=special%s", object,
                        backend_type(c->kind), props, machine);

    return vm_start(MEM_ANON, SIZE, extra);
}

/* The load has used @strategy; "auto" may have chosen any */
static void assert_served(Vm *vm, const char *name, const char *strategy)
{
    g_autoptr(QDict) block = vm_query_block(vm, name);

    if (strcmp(strategy, "auto")) {
        g_assert_cmpstr(qdict_get_str(block, "strategy"), ==, strategy);
    } else {
        g_assert_true(qdict_haskey(block, "decision"));
    }
    g_assert_false(qdict_get_bool(block, "fallback"));
}

static void load_with_data(Vm *vm, const char *strategy)
{
    vm_fill(vm, HIGH, MiB, 1);
    vm_load(vm, "clean");
    g_assert_cmphex(vm_byte(vm, HIGH), ==, 0);
    assert_served(vm, "special", strategy);
}

static void test_numa_policy(const void *opaque)
{
    const Case *c = opaque;
    g_autofree char *before = NULL, *after = NULL;
    Vm *vm;

    if (mem_skip(c->kind)) {
        return;
    }
    vm = vm_with_props(c, ",host-nodes=0,policy=bind", "");
    vm_save(vm, "clean");
    before = vm_numa_policy(vm);
    g_assert_true(g_str_has_prefix(before, "bind"));
    load_with_data(vm, c->strategy);
    load_with_data(vm, c->strategy);
    after = vm_numa_policy(vm);
    g_assert_cmpstr(before, ==, after);
    vm_end(vm);
}

static void test_advice(const void *opaque)
{
    static const struct {
        const char *props, *machine, *flag;
        bool set;
    } variants[] = {
        { "", "", "mg ", true },
        { ",merge=off,dump=off", ",mem-merge=off", "dd ", true },
        { "", ",mem-merge=off,dump-guest-core=off", "mg ", false },
        { ",merge=off", ",mem-merge=off", "mg ", false },
        { "", ",mem-merge=off", "mg ", false },
        { "", "", "dd ", false },
        { ",dump=off", "", "dd ", true },
        { "", ",dump-guest-core=off", "dd ", true },
        { "", "", "hg ", true },
    };
    const Case *c = opaque;

    if (mem_skip(c->kind)) {
        return;
    }
    /* All flags are compared; ./test has several of them set at once */
    for (unsigned i = 0; i < rounds(G_N_ELEMENTS(variants), 3); i++) {
        g_autofree char *before = NULL, *after = NULL;
        Vm *vm = vm_with_props(c, variants[i].props, variants[i].machine);

        vm_save(vm, "clean");
        before = vm_smaps_flags(vm);
        if (c->kind == MEM_ANON) {
            g_assert_cmpint(!!strstr(before, variants[i].flag), ==,
                            variants[i].set);
        }
        load_with_data(vm, c->strategy);
        load_with_data(vm, c->strategy);
        after = vm_smaps_flags(vm);
        g_assert_cmpstr(before, ==, after);
        vm_end(vm);
    }
}

/* All memory is populated at the start, and stays so */
static void test_preallocation(const void *opaque)
{
    const Case *c = opaque;
    const char *strategy = strcmp(c->strategy, "madvise") ? c->strategy
                                                          : "memset";
    uint64_t resident;
    Vm *vm;

    if (mem_skip(c->kind)) {
        return;
    }
    vm = vm_with_props(c, ",prealloc=on", "");
    resident = vm_ram_kib(vm);
    g_assert_cmpuint(resident, ==, SIZE / KiB);
    vm_save(vm, "clean");
    load_with_data(vm, strategy);
    load_with_data(vm, strategy);
    g_assert_cmpuint(vm_ram_kib(vm), ==, SIZE / KiB);
    vm_end(vm);
}

static void test_locked_memory(const void *strategy)
{
    g_autofree char *object = vm_object(strategy, "");
    g_autofree char *extra = g_strdup_printf("%s -overcommit mem-lock=on",
                                             object);
    QDict *block;
    uint64_t locked;
    Vm *vm;

    if (geteuid()) {
        g_test_skip("locking memory takes root");
        return;
    }
    vm = vm_start(MEM_ANON, SIZE, extra);
    vm_save(vm, "clean");
    locked = vm_smaps_kib(vm, "Locked");
    g_assert_cmpuint(locked, ==, SIZE / KiB);
    vm_fill(vm, HIGH, MiB, 1);
    vm_load(vm, "clean");
    g_assert_cmphex(vm_byte(vm, HIGH), ==, 0);
    g_assert_cmpuint(vm_smaps_kib(vm, "Locked"), ==, locked);
    block = vm_query_block(vm, "ram");
    g_assert_cmpstr(qdict_get_str(block, "strategy"), ==, "memset");
    if (strcmp(strategy, "memset")) {
        g_assert_nonnull(strstr(qdict_get_str(block, "reason"), "mem-lock"));
    }
    qobject_unref(block);
    vm_end(vm);
}

/* A descriptor of the test for the memfd that RAM is mapped from */
static int open_memfd(Vm *vm, int *number)
{
    g_autofree char *dir = g_strdup_printf("/proc/%d/fd", qtest_pid(vm->qts));
    g_autoptr(GDir) d = g_dir_open(dir, 0, NULL);
    const char *name;

    while ((name = g_dir_read_name(d))) {
        g_autofree char *path = g_build_filename(dir, name, NULL);
        g_autofree char *target = g_file_read_link(path, NULL);

        if (target && g_str_has_prefix(target, "/memfd:memory-backend-memfd")) {
            *number = atoi(name);
            return open(path, O_RDWR);
        }
    }
    return -1;
}

static void test_memfd(const void *opaque)
{
    const Case *c = opaque;
    int before, after, number, new_number, seals;
    struct stat old, new;
    Vm *vm;

    if (mem_skip(c->kind)) {
        return;
    }
    vm = vm_with_props(c, "", "");
    vm_save(vm, "clean");
    before = open_memfd(vm, &number);
    g_assert_cmpint(before, >=, 0);
    g_assert_cmpint(fstat(before, &old), ==, 0);
    seals = fcntl(before, F_GET_SEALS);
    g_assert_cmpint(seals, ==, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL);
    load_with_data(vm, c->strategy);
    after = open_memfd(vm, &new_number);
    g_assert_cmpint(new_number, ==, number);
    g_assert_cmpint(fstat(after, &new), ==, 0);
    g_assert_cmpint(new.st_size, ==, old.st_size);
    g_assert_cmpint(fcntl(after, F_GET_SEALS), ==, seals);
    if (!strcmp(c->strategy, "remap")) {
        g_assert_cmpuint(new.st_ino, !=, old.st_ino);
    }
    close(before);
    close(after);
    vm_end(vm);
}

/* virtio-blk registers RAM with its block driver, and is notified of changes */
static void test_virtio_blk(const void *opaque)
{
    const Case *c = opaque;
    g_autofree char *object = vm_object(c->strategy, "");
    g_autofree char *extra = g_strdup_printf("%s -device virtio-blk-pci,"
                                             "drive=d0", object);
    Vm *vm;

    if (mem_skip(c->kind)) {
        return;
    }
    vm = vm_start(c->kind, SIZE, extra);
    vm_save(vm, "clean");
    for (unsigned i = 0; i < 3; i++) {
        vm_fill(vm, HIGH, MiB, 1);
        vm_load(vm, "clean");
        g_assert_cmphex(vm_byte(vm, HIGH), ==, 0);
        assert_served(vm, "ram", c->strategy);
    }
    vm_end(vm);
}

static void add(const char *test, const Case *c, void (*func)(const void *))
{
    g_autofree char *path = g_strdup_printf("ram-reset/attribute/%s/%s/%s",
                                            test, c->strategy,
                                            mem_name(c->kind));

    qtest_add_data_func(path, c, func);
}

void add_attribute_tests(void)
{
    static const Case cases[] = {
        { "memset", MEM_ANON }, { "memset", MEM_MEMFD },
        { "madvise", MEM_ANON }, { "madvise", MEM_MEMFD },
        { "remap", MEM_ANON }, { "remap", MEM_MEMFD },
        { "remap", MEM_HUGETLB }, { "auto", MEM_ANON }, { "auto", MEM_MEMFD },
    };

    /* ./test has each kind of memory and two strategies, --all each pair */
    for (unsigned i = 0; i < G_N_ELEMENTS(cases); i++) {
        if (!rounds(1, 0) && strcmp(cases[i].strategy, "memset") &&
            strcmp(cases[i].strategy, "remap")) {
            continue;
        }
        add("numa-policy", &cases[i], test_numa_policy);
        add("advice", &cases[i], test_advice);
        add("preallocation", &cases[i], test_preallocation);
        if (qtest_has_device("virtio-blk-pci")) {
            add("virtio-blk", &cases[i], test_virtio_blk);
        }
        if (cases[i].kind != MEM_ANON) {
            add("memfd", &cases[i], test_memfd);
        }
    }
    add_per_strategy("attribute/locked-memory", test_locked_memory);
}
