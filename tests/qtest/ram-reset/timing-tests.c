/*
 * RAM reset: times and memory of loads
 *
 * Times are compared only between machines that take turns in one run, and
 * as medians; the limits leave room for a noisy host.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/units.h"
#include "qobject/qdict.h"
#include "framework.h"

#define SIZE   (1 * GiB)
#define DIRTY  (16 * MiB)
#define ROUNDS 5

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

static int64_t phase_ns(Vm *vm, const char *phase)
{
    g_autoptr(QDict) info = vm_query(vm);

    return qdict_get_int(qdict_get_qdict(qdict_get_qdict(info, "last-load"),
                                         "phases"), phase);
}

static int64_t load_ns(Vm *vm)
{
    vm_load(vm, "clean");
    return phase_ns(vm, "total");
}

static int64_t median_of(int64_t ns[ROUNDS])
{
    qsort(ns, ROUNDS, sizeof(int64_t), compare);
    return ns[ROUNDS / 2];
}

/* Median load times, in turns, after @dirty bytes have been written */
static void race(Vm *vms[2], uint64_t dirty, int64_t median[2])
{
    int64_t ns[2][ROUNDS];

    for (unsigned r = 0; r < ROUNDS; r++) {
        for (unsigned i = 0; i < 2; i++) {
            if (dirty) {
                vm_fill(vms[i], MiB, dirty, r + 1);
            }
            ns[i][r] = load_ns(vms[i]);
        }
    }
    for (unsigned i = 0; i < 2; i++) {
        median[i] = median_of(ns[i]);
    }
    g_test_message("median load: %.2f ms without, %.2f ms with the object",
                   median[0] / 1e6, median[1] / 1e6);
}

/* A load is faster, and the guest's memory goes back to the host */
static void test_dirtied_memory_is_given_back(void)
{
    g_autofree char *object = vm_object("madvise", "");
    Vm *vms[2] = {
        vm_start(MEM_ANON, SIZE, ""), vm_start(MEM_ANON, SIZE, object),
    };
    uint64_t saved_rss;
    int64_t median[2];

    vm_save(vms[0], "clean");
    vm_save(vms[1], "clean");
    saved_rss = vm_resident_kib(vms[1]);
    race(vms, DIRTY, median);
    g_assert_cmpint(median[1] * 10, <=, median[0] * 7);

    g_assert_cmpuint(vm_resident_kib(vms[0]), >=, DIRTY / KiB);
    g_assert_cmpuint(vm_resident_kib(vms[1]), <=, saved_rss * 11 / 10);
    vm_end(vms[0]);
    vm_end(vms[1]);
}

/* Reading an absent page of shared memory allocates it */
static void test_empty_shared_memory_stays_empty(void)
{
    g_autofree char *object = vm_object("madvise", "");
    Vm *vms[2] = {
        vm_start(MEM_MEMFD, SIZE, ""), vm_start(MEM_MEMFD, SIZE, object),
    };
    int64_t median[2];

    vm_save(vms[0], "clean");
    vm_save(vms[1], "clean");
    vm_load(vms[1], "clean");   /* discards the save's pages */
    race(vms, 0, median);
    g_assert_cmpint(median[1] * 2, <=, median[0]);

    g_assert_cmpuint(vm_resident_kib(vms[0]), >=, SIZE / KiB);
    g_assert_cmpuint(vm_resident_kib(vms[1]), <=, 64 * KiB);
    vm_end(vms[0]);
    vm_end(vms[1]);
}

/* Bytes that the process has asked the kernel to read, so far */
static uint64_t bytes_read(Vm *vm)
{
    g_autofree char *name = g_strdup_printf("/proc/%d/io",
                                            qtest_pid(vm->qts));
    g_autofree char *text = NULL;

    g_assert_true(g_file_get_contents(name, &text, NULL, NULL));
    g_assert_true(g_str_has_prefix(text, "rchar: "));
    return g_ascii_strtoull(text + strlen("rchar: "), NULL, 10);
}

/* Zero pages in runs of @opaque pages: a load reads the snapshot about once */
static void test_runs_are_read_once(const void *opaque)
{
    uint64_t run = GPOINTER_TO_UINT(opaque) * 4 * KiB;
    const char *const objects[] = { "", "-object ram-reset-memset,id=rr0" };
    uint64_t read[2];

    for (unsigned i = 0; i < 2; i++) {
        Vm *vm = vm_start(MEM_ANON, 256 * MiB, objects[i]);

        for (uint64_t at = MiB; at < 256 * MiB; at += run + 4 * KiB) {
            vm_fill(vm, at, 1, 1);
        }
        vm_save(vm, "clean");
        vm_load(vm, "clean");
        read[i] = bytes_read(vm);
        vm_load(vm, "clean");
        read[i] = bytes_read(vm) - read[i];
        vm_end(vm);
    }
    g_test_message("%" PRIu64 " bytes read without, %" PRIu64 " with the "
                   "object", read[0], read[1]);
    g_assert_cmpuint(read[1], <=, 2 * read[0]);
}

/* Clearing in place does not populate what the guest never touched */
static void test_clearing_does_not_allocate(const void *kind)
{
    g_autofree char *object = vm_object("madvise", "");
    uint64_t empty;
    Vm *vm;

    if (mem_skip(GPOINTER_TO_INT(kind))) {
        return;
    }
    vm = vm_start(GPOINTER_TO_INT(kind), 64 * MiB, object);

    /* The save has populated shared memory; start with an empty guest */
    vm_save(vm, "clean");
    vm_load(vm, "clean");
    empty = vm_ram_kib(vm);
    g_assert_cmpuint(empty, <, MiB / KiB);
    qtest_qmp_assert_success(vm->qts,
        "{'execute': 'object-del', 'arguments': {'id': 'rr0'}}");
    qtest_qmp_assert_success(vm->qts,
        "{'execute': 'object-add', 'arguments': {'id': 'rr1',"
        " 'qom-type': 'ram-reset-memset'}}");

    vm_fill(vm, MiB, 64 * KiB, 1);
    vm_load(vm, "clean");
    g_assert_cmphex(vm_byte(vm, MiB), ==, 0);
    g_assert_cmpuint(vm_ram_kib(vm), <=, empty + 2 * MiB / KiB);
    vm_end(vm);
}

#define STRIDE (100 * 4 * KiB)

/* Write to each hundredth page; returns the number of them */
static uint64_t touch(Vm *vm)
{
    uint64_t pages = 0;

    for (uint64_t at = MiB; at < vm->size; at += STRIDE, pages++) {
        vm_fill(vm, at, 1, 1);
    }
    return pages;
}

/*
 * Discarding is no slower than clearing if 1 % of small private pages are dirty
 */
static void test_sparse_memory_is_discarded_as_fast(void)
{
    static const char *const strategies[] = { "memset", "madvise", "remap" };
    int64_t reset[3][ROUNDS], total[3][ROUNDS];
    Vm *vms[3];

    for (unsigned i = 0; i < 3; i++) {
        g_autofree char *object = vm_object(strategies[i], "");

        vms[i] = vm_start(MEM_ANON, SIZE, object);
        vm_save(vms[i], "clean");
        vm_load(vms[i], "clean");
    }
    for (unsigned r = 0; r < ROUNDS; r++) {
        for (unsigned i = 0; i < 3; i++) {
            touch(vms[i]);
            total[i][r] = load_ns(vms[i]);
            reset[i][r] = phase_ns(vms[i], "ram-reset");
        }
    }
    for (unsigned i = 0; i < 3; i++) {
        g_test_message("%s: RAM reset %.3f ms, load %.3f ms", strategies[i],
                       median_of(reset[i]) / 1e6, median_of(total[i]) / 1e6);
        /* savevm does not populate memory, so clearing reads few pages */
        g_assert_cmpint(median_of(reset[i]), <=, 2 * median_of(reset[0]));
        vm_end(vms[i]);
    }
}

typedef struct Count {
    const char *strategy;
    MemKind kind;
    /*
     * For 1 GiB, an empty snapshot and touch(); 0 if it depends on the kernel
     */
    unsigned system_calls;
    bool discards;
} Count;

/*
 * System calls of a walk.  The pagemap takes open, close, and one call for each
 * buffer full of ranges; huge pages need fewer ranges.  Before Linux 6.7 one
 * call fails, and reads fetch the words of all pages.  A memfd needs one more
 * call for its size; before 6.7, calls for each run of data and the hole behind
 * it.
 */
static void check_page_table_calls(MemKind kind, unsigned calls,
                                   uint64_t touched)
{
    unsigned size = kind == MEM_MEMFD;

    if (can_scan_page_tables()) {
        g_assert_cmpuint(calls, >=, 2 + 1 + size);
        g_assert_cmpuint(calls, <=, 2 + DIV_ROUND_UP(touched, 1365) + size);
    } else if (size) {
        g_assert_cmpuint(calls, <=, 2 + 1 + size + 2 * touched + 1);
    } else {
        g_assert_cmpuint(calls, ==, 2 + 1 + 64);
    }
}

static void test_counters(const void *opaque)
{
    const Count *c = opaque;
    g_autofree char *object = vm_object(c->strategy, "");
    uint64_t pages = SIZE / (4 * KiB), touched;
    QDict *block;
    Vm *vm;

    if (mem_skip(c->kind)) {
        return;
    }
    if (mem_page_size(c->kind) == 2 * MiB && hugepages("free") < 512) {
        g_test_skip("fewer than 512 hugepages of 2 MiB are free, raise "
                    "vm.nr_hugepages");
        return;
    }
    vm = vm_start(c->kind, SIZE, object);
    vm_save(vm, "clean");
    for (unsigned i = 0; i < 2; i++) {
        touched = touch(vm);
        vm_load(vm, "clean");
        block = vm_query_block(vm, "ram");
        g_assert_cmpstr(qdict_get_str(block, "strategy"), ==, c->strategy);
        g_assert_cmpuint(qdict_get_int(block, "discarded-pages"), ==,
                         c->discards ? pages : 0);
        g_assert_cmpuint(qdict_get_int(block, "cleared-pages"), ==,
                         c->discards ? 0 : touched);
        g_assert_cmpuint(qdict_get_int(block, "skipped-pages"), ==, pages);
        g_assert_cmpuint(qdict_get_int(block, "checked-pages"), ==, 0);
        g_assert_cmpuint(qdict_get_int(block, "copied-pages"), ==, 0);
        if (c->system_calls) {
            g_assert_cmpuint(qdict_get_int(block, "system-calls"), ==,
                             c->system_calls);
        } else {
            check_page_table_calls(c->kind,
                                   qdict_get_int(block, "system-calls"),
                                   touched);
        }
        qobject_unref(block);
    }
    vm_end(vm);
}

/* Time until QEMU has populated all of RAM */
static int64_t start_ns(Vm *vm, const char *extra)
{
    int64_t before = g_get_monotonic_time();

    vm_run(vm, MEM_HUGETLB_FILE, SIZE, extra);
    return (g_get_monotonic_time() - before) * 1000;
}

/* The kernel clears new hugepages; QEMU has cleared reused ones at its end */
static void test_second_start_is_faster(void)
{
    g_autofree char *extra = vm_object("hugefile", ",unlink=never");
    int64_t ns[2][ROUNDS];
    Vm *vm;

    if (mem_skip(MEM_HUGETLB_FILE)) {
        return;
    }
    if (hugepages("free") < 512) {
        g_test_skip("fewer than 512 hugepages of 2 MiB are free, raise "
                    "vm.nr_hugepages");
        return;
    }
    vm = vm_start(MEM_HUGETLB_FILE, SIZE, extra);
    vm_stop(vm);
    vm->ram_props = ",prealloc=on";
    for (unsigned r = 0; r < ROUNDS; r++) {
        unlink(vm->ram_file);
        for (unsigned i = 0; i < 2; i++) {
            ns[i][r] = start_ns(vm, extra);
            g_assert_cmpuint(vm_smaps_kib(vm, "Shared_Hugetlb") +
                             vm_smaps_kib(vm, "Private_Hugetlb"), ==,
                             SIZE / KiB);
            g_assert_cmphex(vm_byte(vm, SIZE / 2), ==, 0);
            vm_fill(vm, SIZE / 2, MiB, 1);
            vm_stop(vm);
        }
    }
    g_test_message("start: %.1f ms with new hugepages, %.1f ms with old ones",
                   median_of(ns[0]) / 1e6, median_of(ns[1]) / 1e6);
    g_assert_cmpint(median_of(ns[1]), <, median_of(ns[0]));
    vm_run(vm, MEM_HUGETLB_FILE, SIZE, extra);
    vm_end(vm);
}

void add_timing_tests(void)
{
    qtest_add_func("ram-reset/timing/dirtied-memory-is-given-back",
                   test_dirtied_memory_is_given_back);
    qtest_add_func("ram-reset/timing/empty-shared-memory-stays-empty",
                   test_empty_shared_memory_stays_empty);
    qtest_add_func("ram-reset/timing/sparse-memory-is-discarded-as-fast",
                   test_sparse_memory_is_discarded_as_fast);
    qtest_add_func("ram-reset/timing/second-start-is-faster",
                   test_second_start_is_faster);
}

void add_count_tests(bool with_hugepages)
{
    /*
     * memset walks the pagemap, or a hugepage file without holes.  remap calls
     * prim_fresh_map() and prim_fresh_swap(), and gives advice.  hugefile
     * checks the file and each hugepage.
     */
    static const Count counts[] = {
        { "memset", MEM_ANON, 0, false },
        { "memset", MEM_MEMFD, 0, false },
        { "memset", MEM_HUGETLB, 1, false },
        { "madvise", MEM_ANON, 1, true },
        { "madvise", MEM_MEMFD, 1, true },
        { "madvise", MEM_HUGETLB, 3, true },
        { "remap", MEM_ANON, 3 + 2, true },
        { "remap", MEM_MEMFD, 14 + 2, true },
        { "hugefile", MEM_HUGETLB_FILE, 1 + 512, false },
    };
    static const MemKind kinds[] = {
        MEM_ANON, MEM_MEMFD, MEM_HUGETLB, MEM_HUGETLB_PRIVATE,
    };
    /* ./test has the first three */
    static const unsigned runs[] = { 3, 1100, 30000, 100, 7300, 10000 };

    for (unsigned i = 0; !with_hugepages && i < rounds(6, 3); i++) {
        g_autofree char *path =
            g_strdup_printf("ram-reset/timing/runs-are-read-once/%u", runs[i]);

        qtest_add_data_func(path, GUINT_TO_POINTER(runs[i]),
                            test_runs_are_read_once);
    }
    for (unsigned i = 0; i < G_N_ELEMENTS(counts); i++) {
        g_autofree char *path =
            g_strdup_printf("ram-reset/timing/counters/%s/%s",
                            counts[i].strategy, mem_name(counts[i].kind));

        if (mem_is_huge(counts[i].kind) == with_hugepages) {
            qtest_add_data_func(path, &counts[i], test_counters);
        }
    }
    for (unsigned i = 0; i < G_N_ELEMENTS(kinds); i++) {
        g_autofree char *path =
            g_strdup_printf("ram-reset/timing/clearing-does-not-allocate/%s",
                            mem_name(kinds[i]));

        if (mem_is_huge(kinds[i]) == with_hugepages) {
            qtest_add_data_func(path, GINT_TO_POINTER(kinds[i]),
                                test_clearing_does_not_allocate);
        }
    }
}
