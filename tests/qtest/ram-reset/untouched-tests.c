/*
 * RAM reset: memory and machines that a load leaves alone
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/units.h"
#include "qobject/qdict.h"
#include "framework.h"

#define SIZE (16 * MiB)
#define HIGH (1 * MiB)

/* A fuzzer writes its input into such a block before the load */
static void test_ignore_shared_block_is_not_touched(const void *strategy)
{
    g_autofree char *object = vm_object(strategy, "");
    g_autofree char *file = temp_name("shared");
    g_autofree char *extra =
        vm_dimm(object, "memory-backend-file,size=8m,share=on,mem-path=%s",
                file);
    uint8_t buf[2] = { 0x11, 0x22 };
    QDict *block;
    Vm *vm = vm_start(MEM_ANON, SIZE, extra);
    int fd;

    vm_set_capability(vm, "x-ignore-shared", true);
    fd = open(file, O_RDWR);
    g_assert_cmpint(fd, >=, 0);
    g_assert_cmpint(pwrite(fd, buf, 1, 4096), ==, 1);
    vm_fill(vm, HIGH, MiB, 1);
    vm_save(vm, "clean");
    vm_fill(vm, HIGH, MiB, 2);
    g_assert_cmpint(pwrite(fd, buf + 1, 1, 4096), ==, 1);
    vm_load(vm, "clean");

    g_assert_cmpint(pread(fd, buf, 1, 4096), ==, 1);
    g_assert_cmphex(buf[0], ==, 0x22);
    g_assert_cmphex(vm_byte(vm, HIGH), ==, 1);
    block = vm_query_block(vm, "more");
    g_assert_false(qdict_haskey(block, "strategy"));
    g_assert_nonnull(strstr(qdict_get_str(block, "reason"),
                            "x-ignore-shared"));
    qobject_unref(block);
    close(fd);
    unlink(file);
    vm_end(vm);
}

static void test_rom_is_left_to_the_snapshot(const void *strategy)
{
    g_autofree char *object = vm_object(strategy, ",verify=on");
    g_autofree char *before = g_malloc(64 * KiB);
    g_autofree char *after = g_malloc(64 * KiB);
    Vm *vm = vm_start(MEM_ANON, SIZE, object);
    QDict *block;

    qtest_memread(vm->qts, 0xf0000, before, 64 * KiB);
    g_assert_false(before[64 * KiB - 16] == 0);
    vm_save(vm, "clean");
    vm_load(vm, "clean");
    qtest_memread(vm->qts, 0xf0000, after, 64 * KiB);
    g_assert_cmpint(memcmp(before, after, 64 * KiB), ==, 0);

    block = vm_query_block(vm, "pc.bios");
    g_assert_nonnull(block);
    g_assert_false(qdict_haskey(block, "strategy"));
    g_assert_cmpuint(qdict_get_int(block, "zeroed-bytes"), ==, 0);
    g_assert_nonnull(strstr(qdict_get_str(block, "reason"), "read-only"));
    qobject_unref(block);
    vm_end(vm);
}

/* A writable flash has work to do when the guest runs */
static void test_two_loads_while_stopped(void)
{
    g_autofree char *flash = temp_name("flash");
    g_autofree char *pflash = g_strdup_printf("-drive if=pflash,format=qcow2,"
                                              "file=%s", flash);
    Vm *vm;

    g_assert_true(mkimg(flash, "qcow2", 1));
    vm = vm_start(MEM_ANON, SIZE, the_machine()->is_pc ? pflash : "");
    vm_save(vm, "clean");
    qtest_qmp_assert_success(vm->qts, "{'execute': 'stop'}");
    vm_load(vm, "clean");
    vm_load(vm, "clean");
    qtest_qmp_assert_success(vm->qts, "{'execute': 'cont'}");
    qtest_qmp_assert_success(vm->qts, "{'execute': 'stop'}");
    vm_end(vm);
    unlink(flash);
}

void add_untouched_tests(void)
{
    add_per_strategy("untouched/ignore-shared-block",
                     test_ignore_shared_block_is_not_touched);
    if (the_machine()->is_pc) {
        add_per_strategy("untouched/rom-is-left-to-the-snapshot",
                         test_rom_is_left_to_the_snapshot);
    }
    qtest_add_func("ram-reset/untouched/two-loads-while-stopped",
                   test_two_loads_while_stopped);
}
