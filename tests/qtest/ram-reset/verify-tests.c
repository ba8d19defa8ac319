/*
 * RAM reset: verify=on finds a page that differs from the snapshot
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <sys/mman.h>
#include "qemu/atomic.h"
#include "qemu/units.h"
#include "framework.h"

#define SIZE (16 * MiB)

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
 * The writer may get no processor during a load, which then finds nothing.
 * Returns the number of such loads.
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

/* A load must notice a writer to shared memory */
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
    g_assert_cmpuint(vm_counter(vm, "loads"), ==, 1 + missed);
    g_assert_cmpuint(vm_counter(vm, "failed-loads"), ==, 1);

    vm_load(vm, "clean");
    g_assert_cmphex(ram[where], ==, 0);
    munmap(ram, size);
    close(fd);
    vm_end(vm);
}

void add_verify_tests(void)
{
    add_per_strategy("verify/finds-a-difference",
                     test_verify_finds_a_difference);
}
