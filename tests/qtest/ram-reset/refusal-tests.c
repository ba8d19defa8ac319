/*
 * RAM reset: loads that are refused before anything has been changed
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/units.h"
#include "framework.h"

#define SIZE (16 * MiB)
#define HIGH (1 * MiB)

static void test_other_ram_size_is_refused(const void *strategy)
{
    g_autofree char *object = vm_object(strategy, "");
    g_autofree uint8_t *content = NULL;
    Vm *vm = vm_start(MEM_ANON, 2 * SIZE, "");

    vm_stop(vm);
    disk_write(vm, 0x11);
    vm_run(vm, MEM_ANON, 2 * SIZE, object);
    vm_save(vm, "big");
    vm_stop(vm);
    disk_write(vm, 0x22);

    vm_run(vm, MEM_ANON, SIZE, object);
    vm_fill(vm, HIGH, SIZE - HIGH, 0x33);
    content = vm_content(vm);
    vm_load_says(vm, "big", "Snapshot 'big' does not fit, nothing has been "
                            "changed: RAM block 'ram' has 33554432 bytes");
    vm_assert_content(vm, content);
    g_assert_cmpuint(vm_counter(vm, "failed-loads"), ==, 0);

    /* The machine works as before */
    vm_save(vm, "small");
    vm_fill(vm, HIGH, SIZE - HIGH, 0x44);
    vm_load(vm, "small");
    vm_assert_content(vm, content);
    vm_stop(vm);
    g_assert_cmphex(disk_read(vm), ==, 0x22);

    /* The snapshot has one more disk */
    vm_run(vm, MEM_ANON, 2 * SIZE, object);
    vm_load(vm, "big");
    vm_stop(vm);
    g_assert_cmphex(disk_read(vm), ==, 0x11);
    vm_run(vm, MEM_ANON, SIZE, "");
    vm_end(vm);
}

/* The machine has got a pc-dimm after the save of "without" */
static Vm *vm_with_new_dimm(const char *object)
{
    g_autofree char *extra =
        g_strdup_printf("%s -m 16m,maxmem=64m,slots=1 "
                        "-object memory-backend-ram,id=more,size=8m", object);
    Vm *vm = vm_start(MEM_ANON, SIZE, extra);

    vm_save(vm, "without");
    qtest_qmp_assert_success(vm->qts,
        "{'execute': 'device_add', 'arguments': {'driver': 'pc-dimm',"
        " 'memdev': 'more', 'id': 'dimm0'}}");
    return vm;
}

static void test_missing_ram_is_refused(const void *strategy)
{
    g_autofree char *object = vm_object(strategy, "");
    Vm *vm = vm_with_new_dimm(object);

    vm_load_says(vm, "without", "this machine has RAM block 'more'");
    vm_end(vm);
}

/* Objects may cover other blocks in a second load of a snapshot */
static void test_missing_ram_is_refused_later(const void *strategy)
{
    g_autofree char *object = vm_object(strategy, ",memdev=ram");
    Vm *vm = vm_with_new_dimm(object);

    vm_load(vm, "without");
    qtest_qmp_assert_success(vm->qts,
        "{'execute': 'object-add', 'arguments': {'id': 'rr1',"
        " 'qom-type': 'ram-reset-memset'}}");
    vm_load_says(vm, "without", "this machine has RAM block 'more'");
    vm_end(vm);
}

static void test_other_capability_is_refused(const void *strategy)
{
    g_autofree char *object = vm_object(strategy, "");
    Vm *vm = vm_start(MEM_ANON, SIZE, object);

    vm_save(vm, "off");
    vm_set_capability(vm, "x-ignore-shared", true);
    vm_load_says(vm, "off", "capability 'x-ignore-shared' off, the capability "
                            "is on");
    vm_save(vm, "on");
    vm_load(vm, "on");
    vm_set_capability(vm, "x-ignore-shared", false);
    vm_load_says(vm, "on", "capability 'x-ignore-shared' on, the capability "
                           "is off");
    vm_load(vm, "off");
    vm_end(vm);
}

static void test_running_migration_is_not_disturbed(const void *strategy)
{
    g_autofree char *object = vm_object(strategy, "");
    Vm *vm = vm_start(MEM_ANON, SIZE, object);

    vm_save(vm, "clean");
    vm_fill(vm, HIGH, SIZE - HIGH, 1);
    qtest_qmp_assert_success(vm->qts,
        "{'execute': 'migrate-set-parameters', 'arguments': {"
        " 'max-bandwidth': 1000}}");
    qtest_qmp_assert_success(vm->qts,
        "{'execute': 'migrate', 'arguments': {"
        " 'uri': 'exec:cat >/dev/null'}}");
    vm_load_says(vm, "clean", "nothing has been changed: a migration is "
                              "running");
    g_assert_cmphex(vm_byte(vm, HIGH), ==, 1);
    qtest_qmp_assert_success(vm->qts, "{'execute': 'migrate_cancel'}");
    vm_end(vm);
}

static void test_capabilities_are_refused(const void *strategy)
{
    /* Since 10.1 QEMU itself refuses multifd, in other words */
    static const struct { const char *name, *why; } cases[] = {
        { "postcopy-ram", "nothing has been changed: migration capability "
                          "'postcopy-ram' is on" },
        { "multifd", "multifd" },
    };
    g_autofree char *object = vm_object(strategy, "");
    Vm *vm = vm_start(MEM_ANON, SIZE, object);

    vm_save(vm, "clean");
    vm_fill(vm, HIGH, MiB, 1);
    for (unsigned i = 0; i < G_N_ELEMENTS(cases); i++) {
        vm_set_capability(vm, cases[i].name, true);
        vm_load_says(vm, "clean", cases[i].why);
        g_assert_cmphex(vm_byte(vm, HIGH), ==, 1);
        vm_set_capability(vm, cases[i].name, false);
    }
    vm_load(vm, "clean");
    g_assert_cmphex(vm_byte(vm, HIGH), ==, 0);
    vm_end(vm);
}

void add_refusal_tests(void)
{
    add_per_strategy("refusal/other-ram-size",
                     test_other_ram_size_is_refused);
    add_per_strategy("refusal/missing-ram",
                     test_missing_ram_is_refused);
    add_per_strategy("refusal/missing-ram-later",
                     test_missing_ram_is_refused_later);
    add_per_strategy("refusal/other-capability",
                     test_other_capability_is_refused);
    add_per_strategy("refusal/running-migration-is-not-disturbed",
                     test_running_migration_is_not_disturbed);
    add_per_strategy("refusal/capabilities",
                     test_capabilities_are_refused);
}
