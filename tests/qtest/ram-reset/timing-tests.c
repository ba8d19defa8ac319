/*
 * RAM reset: what it is for
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

static int64_t load_ns(Vm *vm)
{
    g_autoptr(QDict) info = NULL;

    vm_load(vm, "clean");
    info = vm_query(vm);
    return qdict_get_int(qdict_get_qdict(qdict_get_qdict(info, "last-load"),
                                         "phases"), "total");
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
        qsort(ns[i], ROUNDS, sizeof(int64_t), compare);
        median[i] = ns[i][ROUNDS / 2];
    }
    g_test_message("median load: %.2f ms without, %.2f ms with the object",
                   median[0] / 1e6, median[1] / 1e6);
}

/* A load is faster, and what the guest has allocated goes back to the host */
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
    saved_rss = vm_status_kib(vms[1], "VmRSS");
    race(vms, DIRTY, median);
    g_assert_cmpint(median[1] * 10, <=, median[0] * 7);

    g_assert_cmpuint(vm_status_kib(vms[0], "VmRSS"), >=, DIRTY / KiB);
    g_assert_cmpuint(vm_status_kib(vms[1], "VmRSS"), <=, saved_rss * 11 / 10);
    vm_end(vms[0]);
    vm_end(vms[1]);
}

/* Reading a page of shared memory that is not there allocates it */
static void test_empty_shared_memory_stays_empty(void)
{
    g_autofree char *object = vm_object("madvise", "");
    Vm *vms[2] = {
        vm_start(MEM_MEMFD, SIZE, ""), vm_start(MEM_MEMFD, SIZE, object),
    };
    int64_t median[2];

    vm_save(vms[0], "clean");
    vm_save(vms[1], "clean");
    vm_load(vms[1], "clean");   /* gives back what the save has allocated */
    race(vms, 0, median);
    g_assert_cmpint(median[1] * 2, <=, median[0]);

    g_assert_cmpuint(vm_status_kib(vms[0], "VmRSS"), >=, SIZE / KiB);
    g_assert_cmpuint(vm_status_kib(vms[1], "VmRSS"), <=, 64 * KiB);
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

/* Zero pages in runs of @opaque pages; a load reads the snapshot about once */
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

static uint64_t resident_kib(Vm *vm)
{
    return vm_smaps_kib(vm, "Rss") + vm_smaps_kib(vm, "Shared_Hugetlb") +
           vm_smaps_kib(vm, "Private_Hugetlb");
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

    /* Saving has populated shared memory; start from an empty guest */
    vm_save(vm, "clean");
    vm_load(vm, "clean");
    empty = resident_kib(vm);
    g_assert_cmpuint(empty, <, MiB / KiB);
    qtest_qmp_assert_success(vm->qts,
        "{'execute': 'object-del', 'arguments': {'id': 'rr0'}}");
    qtest_qmp_assert_success(vm->qts,
        "{'execute': 'object-add', 'arguments': {'id': 'rr1',"
        " 'qom-type': 'ram-reset-memset'}}");

    vm_fill(vm, MiB, 64 * KiB, 1);
    vm_load(vm, "clean");
    g_assert_cmphex(qtest_readb(vm->qts, MiB), ==, 0);
    g_assert_cmpuint(resident_kib(vm), <=, empty + 2 * MiB / KiB);
    vm_end(vm);
}

void add_timing_tests(void)
{
    static const MemKind kinds[] = {
        MEM_ANON, MEM_MEMFD, MEM_HUGETLB, MEM_HUGETLB_PRIVATE,
    };
    static const unsigned runs[] = { 3, 100, 1100, 7300, 10000, 30000 };

    qtest_add_func("ram-reset/timing/dirtied-memory-is-given-back",
                   test_dirtied_memory_is_given_back);
    qtest_add_func("ram-reset/timing/empty-shared-memory-stays-empty",
                   test_empty_shared_memory_stays_empty);
    for (unsigned i = 0; i < G_N_ELEMENTS(runs); i++) {
        g_autofree char *path =
            g_strdup_printf("ram-reset/timing/runs-are-read-once/%u", runs[i]);

        qtest_add_data_func(path, GUINT_TO_POINTER(runs[i]),
                            test_runs_are_read_once);
    }
    for (unsigned i = 0; i < G_N_ELEMENTS(kinds); i++) {
        g_autofree char *path =
            g_strdup_printf("ram-reset/timing/clearing-does-not-allocate/%s",
                            mem_name(kinds[i]));

        qtest_add_data_func(path, GINT_TO_POINTER(kinds[i]),
                            test_clearing_does_not_allocate);
    }
}
