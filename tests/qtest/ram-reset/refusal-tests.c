/*
 * RAM reset: what must not be touched, and what must not go wrong
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <sys/mman.h>
#include "qemu/atomic.h"
#include "qemu/units.h"
#include "qobject/qdict.h"
#include "framework.h"

#define SIZE (16 * MiB)
#define HIGH (1 * MiB)

static char *temp_file(const char *suffix)
{
    return g_strdup_printf("%s/ram-reset-refusal-%d.%s", g_get_tmp_dir(),
                           getpid(), suffix);
}

static uint64_t counter(Vm *vm, const char *name)
{
    g_autoptr(QDict) info = vm_query(vm);

    return qdict_get_int(info, name);
}

static void set_capability(Vm *vm, const char *name, bool on)
{
    qtest_qmp_assert_success(vm->qts,
        "{'execute': 'migrate-set-capabilities', 'arguments': {"
        " 'capabilities': [{'capability': %s, 'state': %i}]}}", name, on);
}

/* A fuzzer writes its input into such a block before the load */
static void test_ignore_shared_block_is_not_touched(const void *strategy)
{
    g_autofree char *object = vm_object(strategy, "");
    g_autofree char *file = temp_file("shared");
    g_autofree char *extra =
        vm_dimm(object, "memory-backend-file,size=8m,share=on,mem-path=%s",
                file);
    uint8_t buf[2] = { 0x11, 0x22 };
    QDict *block;
    Vm *vm = vm_start(MEM_ANON, SIZE, extra);
    int fd;

    set_capability(vm, "x-ignore-shared", true);
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
    g_assert_cmpuint(counter(vm, "failed-loads"), ==, 0);

    /* It is as good as ever */
    vm_save(vm, "small");
    vm_fill(vm, HIGH, SIZE - HIGH, 0x44);
    vm_load(vm, "small");
    vm_assert_content(vm, content);
    vm_stop(vm);
    g_assert_cmphex(disk_read(vm), ==, 0x22);

    /* The snapshot does have another disk */
    vm_run(vm, MEM_ANON, 2 * SIZE, object);
    vm_load(vm, "big");
    vm_stop(vm);
    g_assert_cmphex(disk_read(vm), ==, 0x11);
    vm_run(vm, MEM_ANON, SIZE, "");
    vm_end(vm);
}

/* It has got a pc-dimm after the save of "without" */
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

/* Who covers what may change between two loads of one snapshot */
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
    set_capability(vm, "x-ignore-shared", true);
    vm_load_says(vm, "off", "capability 'x-ignore-shared' off, which is on");
    vm_save(vm, "on");
    vm_load(vm, "on");
    set_capability(vm, "x-ignore-shared", false);
    vm_load_says(vm, "on", "capability 'x-ignore-shared' on, which is off");
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
        set_capability(vm, cases[i].name, true);
        vm_load_says(vm, "clean", cases[i].why);
        g_assert_cmphex(vm_byte(vm, HIGH), ==, 1);
        set_capability(vm, cases[i].name, false);
    }
    vm_load(vm, "clean");
    g_assert_cmphex(vm_byte(vm, HIGH), ==, 0);
    vm_end(vm);
}

static uint64_t resident_kib(Vm *vm)
{
    return vm_status_kib(vm, "RssAnon");
}

/* What was allocated up-front on purpose must not be discarded */
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

/* The memory's owner forbids punching holes after QEMU has mapped it */
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

/* A byte of each page, each time another one */
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
        g_assert_cmpuint(counter(vm, "fallbacks"), ==, i);
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

/* The upper half is used but once, and would be discarded; see auto-tests.c */
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

typedef struct Writer {
    uint8_t *at;
    bool stop;
} Writer;

static void *keep_writing(void *opaque)
{
    Writer *w = opaque;

    while (!qatomic_read(&w->stop)) {
        qatomic_set(w->at, 0x77);
    }
    return NULL;
}

/*
 * The writer may get no processor during a load, which finds nothing then.
 * Returns how many loads were like that.
 */
static unsigned load_until_it_says(Vm *vm, const char *tag,
                                   const char *message)
{
    for (unsigned i = 0; i < 200; i++) {
        g_autofree char *text = qtest_hmp(vm->qts, "loadvm %s", tag);

        if (*text) {
            g_test_message("load %u: %s", i, text);
            g_assert_nonnull(strstr(text, message));
            return i;
        }
        g_usleep(1000 * i);
    }
    g_assert_not_reached();
}

/* Somebody writes to shared memory while it is loaded: that must be seen */
static void test_verify_finds_a_difference(const void *strategy)
{
    const uint64_t size = 128 * MiB, where = 64 * MiB + 123;
    g_autofree char *object = vm_object(strategy, ",verify=on");
    int fd = memfd_create("ram", MFD_CLOEXEC);
    g_autofree char *extra = NULL;
    uint8_t *ram;
    unsigned missed;
    Writer writer;
    GThread *thread;
    Vm *vm;

    g_assert_cmpint(ftruncate(fd, size), ==, 0);
    ram = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    g_assert_true(ram != MAP_FAILED);
    extra = vm_dimm(object, "memory-backend-file,size=128m,share=on,"
                            "mem-path=/proc/%d/fd/%d", getpid(), fd);
    vm = vm_start(MEM_ANON, SIZE, extra);
    vm_save(vm, "clean");
    vm_load(vm, "clean");

    writer = (Writer) { .at = ram + where };
    thread = g_thread_new("writer", keep_writing, &writer);
    missed = load_until_it_says(vm, "clean",
                                "a page that should be zero at RAM block "
                                "'more', offset 0x4000000");
    qatomic_set(&writer.stop, true);
    g_thread_join(thread);
    g_assert_cmpuint(counter(vm, "loads"), ==, 1 + missed);
    g_assert_cmpuint(counter(vm, "failed-loads"), ==, 1);

    vm_load(vm, "clean");
    g_assert_cmphex(ram[where], ==, 0);
    munmap(ram, size);
    close(fd);
    vm_end(vm);
}

/* A flash that can be written has something to do once the guest runs */
static void test_two_loads_while_stopped(void)
{
    g_autofree char *flash = temp_file("flash");
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

void add_refusal_tests(void)
{
    add_per_strategy("refusal/ignore-shared-block-is-not-touched",
                     test_ignore_shared_block_is_not_touched);
    if (the_machine()->is_pc) {
        add_per_strategy("refusal/rom-is-left-to-the-snapshot",
                         test_rom_is_left_to_the_snapshot);
    }
    add_per_strategy("refusal/other-ram-size-is-refused",
                     test_other_ram_size_is_refused);
    add_per_strategy("refusal/missing-ram-is-refused",
                     test_missing_ram_is_refused);
    add_per_strategy("refusal/missing-ram-is-refused-later",
                     test_missing_ram_is_refused_later);
    add_per_strategy("refusal/other-capability-is-refused",
                     test_other_capability_is_refused);
    add_per_strategy("refusal/running-migration-is-not-disturbed",
                     test_running_migration_is_not_disturbed);
    add_per_strategy("refusal/capabilities-are-refused",
                     test_capabilities_are_refused);
    add_per_strategy("refusal/verify-finds-a-difference",
                     test_verify_finds_a_difference);
    qtest_add_func("ram-reset/refusal/two-loads-while-stopped",
                   test_two_loads_while_stopped);
    qtest_add_func("ram-reset/refusal/prealloc-stays-allocated",
                   test_prealloc_stays_allocated);
    qtest_add_data_func("ram-reset/refusal/failing-strategy-falls-back/madvise",
                        "madvise", test_failing_strategy_falls_back);
    qtest_add_data_func("ram-reset/refusal/failing-strategy-falls-back/auto",
                        "auto", test_failing_strategy_falls_back);
    qtest_add_func("ram-reset/refusal/failing-part-falls-back",
                   test_failing_part_falls_back);
}
