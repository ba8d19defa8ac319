/*
 * RAM reset: memory that is easily got wrong
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/units.h"
#include "qobject/qdict.h"
#include "framework.h"

#define SIZE (16 * MiB)

/* A discarded hugepage that has lost its reservation may cause SIGBUS later */
static void test_hugepages_stay_reserved(const void *strategy)
{
    g_autofree char *object = vm_object(strategy, "");
    uint64_t ours;
    Vm *vm;

    if (mem_skip(MEM_HUGETLB)) {
        return;
    }
    ours = hugepages("free") - hugepages("resv");
    vm = vm_start(MEM_HUGETLB, SIZE, object);
    ours -= hugepages("free") - hugepages("resv");
    g_assert_cmpuint(ours, ==, SIZE / (2 * MiB));
    vm_save(vm, "clean");
    for (unsigned i = 0; i < 3; i++) {
        uint64_t rest = hugepages("free") - hugepages("resv");

        vm_fill(vm, MiB, SIZE - MiB, 1);
        vm_load(vm, "clean");
        g_assert_cmpuint(hugepages("free") - hugepages("resv"), ==, rest);
    }
    vm_end(vm);
}

static char *virtio_mem(const char *object)
{
    return g_strdup_printf("%s -m 16m,maxmem=16g "
                           "-object memory-backend-memfd,id=vmem,size=8g,"
                           "share=on,hugetlb=on,hugetlbsize=2M,reserve=off "
                           "-device virtio-mem-pci,memdev=vmem,id=vm0,"
                           "block-size=2M,requested-size=0", object);
}

/* The host has fewer hugepages than the device has room for */
static void test_virtio_mem_stays_unplugged(const void *strategy)
{
    g_autofree char *object = vm_object(strategy, "");
    g_autofree char *extra = virtio_mem(object);
    uint64_t before;
    Vm *vm;

    if (mem_skip(MEM_HUGETLB)) {
        return;
    }
    vm = vm_start(MEM_ANON, SIZE, extra);
    vm_save(vm, "clean");
    before = hugepages("free");
    g_assert_cmpuint(before, <, 4096);
    vm_fill(vm, MiB, MiB, 1);
    vm_load(vm, "clean");
    g_assert_cmphex(vm_byte(vm, MiB), ==, 0);
    g_assert_cmpuint(hugepages("free"), ==, before);
    vm_end(vm);
}

/* The device is loaded before the rest of RAM, so RAM cannot be compared */
static void test_virtio_mem_cannot_be_verified(const void *strategy)
{
    g_autofree char *object = vm_object(strategy, ",verify=on");
    g_autofree char *extra = virtio_mem(object);
    Vm *vm;

    if (mem_skip(MEM_HUGETLB)) {
        return;
    }
    vm = vm_start(MEM_ANON, SIZE, extra);
    vm_save(vm, "clean");
    vm_load_says(vm, "clean", "RAM cannot be verified: ");
    vm_load_says(vm, "clean", "RAM cannot be verified: ");
    vm_end(vm);
}

/* A character device has no holes to punch, and none for lseek() to find */
static void test_character_device(const void *strategy)
{
    g_autofree char *object = vm_object(strategy, "");
    g_autofree char *extra = vm_dimm(object, "memory-backend-file,size=8m,"
                                             "share=on,mem-path=/dev/zero");
    Vm *vm = vm_start(MEM_ANON, SIZE, extra);

    vm_fill(vm, DIMM, MiB, 1);
    vm_save(vm, "clean");
    vm_fill(vm, DIMM, 4 * MiB, 2);
    vm_load(vm, "clean");
    g_assert_cmphex(vm_byte(vm, DIMM), ==, 1);
    g_assert_cmphex(vm_byte(vm, DIMM + MiB), ==, 0);
    g_assert_cmphex(vm_byte(vm, DIMM + 4 * MiB - 1), ==, 0);
    vm_end(vm);
}

/*
 * An unwritten page of a private mapping shows later writes to the file through
 * a shared mapping
 */
static void test_two_mappings_of_one_file(const void *strategy)
{
    g_autofree char *object = vm_object(strategy, ",verify=on");
    g_autofree char *file = g_strdup_printf("/dev/shm/ram-reset-test-%d",
                                            getpid());
    g_autofree char *extra =
        g_strdup_printf("%s -m 16m,maxmem=64m,slots=2 "
                        "-object memory-backend-file,id=shared,size=8m,"
                        "share=on,mem-path=%s "
                        "-object memory-backend-file,id=private,size=8m,"
                        "share=off,mem-path=%s "
                        "-device pc-dimm,memdev=shared,id=dimm0,addr=%" PRIu64
                        " -device pc-dimm,memdev=private,id=dimm1,addr=%"
                        PRIu64, object, file, file, the_machine()->dimm,
                        the_machine()->dimm + 8 * MiB);
    g_autofree char *loadvm = g_strdup_printf("%s -loadvm clean", extra);
    Vm *vm = vm_start(MEM_ANON, SIZE, extra);

    vm_fill(vm, DIMM + 8 * MiB, MiB, 1);
    vm_fill(vm, DIMM + 8 * MiB, MiB, 0);
    vm_fill(vm, DIMM, MiB, 0xaa);
    g_assert_cmphex(vm_byte(vm, DIMM + 8 * MiB), ==, 0);
    vm_save(vm, "clean");
    vm_stop(vm);
    unlink(file);

    vm_run(vm, MEM_ANON, SIZE, loadvm);
    g_assert_cmphex(vm_byte(vm, DIMM), ==, 0xaa);
    g_assert_cmphex(vm_byte(vm, DIMM + 8 * MiB), ==, 0);
    unlink(file);
    vm_end(vm);
}

void add_hugepage_tests(void)
{
    add_per_strategy("memory/hugepages-stay-reserved",
                     test_hugepages_stay_reserved);
    if (qtest_has_device("virtio-mem-pci")) {
        add_per_strategy("memory/virtio-mem-stays-unplugged",
                         test_virtio_mem_stays_unplugged);
    }
}

void add_memory_tests(void)
{
    if (qtest_has_device("virtio-mem-pci")) {
        add_per_strategy("memory/virtio-mem-cannot-be-verified",
                         test_virtio_mem_cannot_be_verified);
    }
    add_per_strategy("memory/character-device", test_character_device);
    add_per_strategy("memory/two-mappings-of-one-file",
                     test_two_mappings_of_one_file);
}
