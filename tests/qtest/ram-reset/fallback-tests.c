/*
 * RAM reset: another strategy replaces one that is refused or fails
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/units.h"
#include "qobject/qdict.h"
#include "framework.h"

#define SIZE (16 * MiB)

static uint64_t resident_kib(Vm *vm)
{
    return vm_status_kib(vm, "RssAnon");
}

/* Preallocated memory must not be discarded */
static void test_prealloc_stays_allocated(void)
{
    g_autofree char *object = vm_object("madvise", ",memdev=more");
    g_autofree char *extra =
        vm_dimm(object, "memory-backend-ram,size=64m,prealloc=on");
    Vm *vm = vm_start(MEM_ANON, SIZE, extra);
    QDict *block;

    vm_save(vm, "clean");
    vm_fill(vm, DIMM, MiB, 1);
    g_assert_cmpuint(resident_kib(vm), >=, 64 * KiB);
    vm_load(vm, "clean");
    g_assert_cmphex(vm_byte(vm, DIMM), ==, 0);
    g_assert_cmpuint(resident_kib(vm), >=, 64 * KiB);
    block = vm_query_block(vm, "more");
    g_assert_cmpstr(qdict_get_str(block, "strategy"), ==, "memset");
    g_assert_nonnull(strstr(qdict_get_str(block, "reason"), "prealloc=on"));
    g_assert_false(qdict_get_bool(block, "fallback"));
    qobject_unref(block);
    vm_end(vm);
}

/* The owner of the memory forbids punching holes after QEMU has mapped it */
static Vm *vm_start_sealed(const char *object, uint64_t size, int *fd)
{
    g_autofree char *extra = NULL;
    Vm *vm;

    *fd = memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    g_assert_cmpint(*fd, >=, 0);
    g_assert_cmpint(ftruncate(*fd, size), ==, 0);
    extra = vm_dimm(object, "memory-backend-file,size=%" PRIu64 ",share=on,"
                            "mem-path=/proc/%d/fd/%d", size, getpid(), *fd);
    vm = vm_start(MEM_ANON, SIZE, extra);
    g_assert_cmpint(fcntl(*fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), ==, 0);
    return vm;
}

/* Reads a byte of each page, at another offset each time */
static void assert_file_is_zero(int fd, uint64_t size)
{
    for (uint64_t at = 0; at < size; at += 4095) {
        uint8_t byte;

        g_assert_cmpint(pread(fd, &byte, 1, at), ==, 1);
        g_assert_cmphex(byte, ==, 0);
    }
}

static void test_failing_strategy_falls_back(const void *opaque)
{
    const char *strategy = opaque;
    bool chosen = !strcmp(strategy, "auto");
    g_autofree char *costs = costs_file(1000, 1, 1e6, 1);
    g_autofree char *props = g_strdup_printf(",memdev=more%s%s", chosen
                                             ? ",costs=" : "",
                                             chosen ? costs : "");
    g_autofree char *object = vm_object(strategy, props);
    g_autofree char *warning = g_strdup_printf(
        "warning: ram-reset-%s 'rr0': could not reset RAM block 'more' by "
        "madvise", strategy);
    uint8_t byte = 0;
    QDict *block;
    int fd;
    Vm *vm = vm_start_sealed(object, 8 * MiB, &fd);

    vm_save(vm, "clean");
    for (unsigned i = 1; i <= 3; i++) {
        vm_fill(vm, DIMM, 8 * MiB, i);
        g_assert_cmpint(pread(fd, &byte, 1, 12345), ==, 1);
        g_assert_cmphex(byte, ==, i);
        if (i == 1) {
            vm_load_says(vm, "clean", warning);
        } else {
            vm_load(vm, "clean");
        }
        assert_file_is_zero(fd, 8 * MiB);
        g_assert_cmpuint(vm_counter(vm, "fallbacks"), ==, i);
    }
    block = vm_query_block(vm, "more");
    g_assert_cmpstr(qdict_get_str(block, "strategy"), ==, "memset");
    g_assert_true(qdict_get_bool(block, "fallback"));
    g_assert_cmpstr(qdict_get_str(block, "reason"), ==,
                    "madvise failed: Operation not permitted");
    qobject_unref(block);
    close(fd);
    vm_end(vm);
    unlink(costs);
}

/* The upper half is used once, and would be discarded; see auto-tests.c */
static void test_failing_part_falls_back(void)
{
    g_autofree char *costs = costs_file(200, 100, 1e6, 1000);
    g_autofree char *props = g_strdup_printf(",memdev=more,verify=on,costs=%s",
                                             costs);
    g_autofree char *object = vm_object("auto", props);
    uint64_t used[] = { 32 * MiB, 16 * MiB, 16 * MiB };
    QDict *block;
    int fd;
    Vm *vm = vm_start_sealed(object, 32 * MiB, &fd);

    vm_save(vm, "clean");
    for (unsigned i = 0; i < G_N_ELEMENTS(used); i++) {
        vm_fill(vm, DIMM, used[i], 1);
        if (i < 2) {
            vm_load(vm, "clean");
        } else {
            vm_load_says(vm, "clean", "warning: ram-reset-auto 'rr0': could "
                                      "not reset RAM block 'more' by madvise");
        }
        assert_file_is_zero(fd, 32 * MiB);
    }
    block = vm_query_block(vm, "more");
    g_assert_cmpstr(qdict_get_str(block, "strategy"), ==, "split");
    g_assert_true(qdict_get_bool(block, "fallback"));
    qobject_unref(block);
    close(fd);
    vm_end(vm);
    unlink(costs);
}

void add_fallback_tests(void)
{
    qtest_add_func("ram-reset/fallback/prealloc-stays-allocated",
                   test_prealloc_stays_allocated);
    qtest_add_data_func("ram-reset/fallback/failing-strategy/madvise",
                        "madvise", test_failing_strategy_falls_back);
    qtest_add_data_func("ram-reset/fallback/failing-strategy/auto",
                        "auto", test_failing_strategy_falls_back);
    qtest_add_func("ram-reset/fallback/failing-part",
                   test_failing_part_falls_back);
}
