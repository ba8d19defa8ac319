/*
 * RAM reset: the ways to load, on each machine; one has target pages that are
 * smaller than the host's
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <glib/gstdio.h>
#include "qemu/units.h"
#include "qobject/qdict.h"
#include "framework.h"

#define SIZE  (16 * MiB)
#define HIGH  (1 * MiB)

typedef struct Case {
    const char *strategy;       /* NULL for no object */
    const char *props;
    MemKind kind;
    bool small_pages;
} Case;

/* Writes of any length and place, also to parts of pages */
static void scribble(Vm *vm, GRand *rand, unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        uint64_t addr = g_rand_int_range(rand, HIGH / 4, SIZE / 4 - KiB) * 4;
        uint64_t len = g_rand_int_range(rand, 1, KiB) * 4;

        if (g_rand_int_range(rand, 0, 3)) {
            vm_random(vm, rand, addr, len);
        } else {
            vm_fill(vm, addr, len, 0);
        }
    }
}

static void load(Vm *vm, const char *tag, const uint8_t *content)
{
    vm_load(vm, tag);
    vm_assert_content(vm, content);
}

static void save_and_load(Vm *vm)
{
    GRand *rand = g_rand_new_with_seed(9);
    g_autofree uint8_t *one = NULL, *two = NULL;

    scribble(vm, rand, 500);
    vm_save(vm, "one");
    one = vm_content(vm);
    scribble(vm, rand, 500);
    vm_save(vm, "two");
    two = vm_content(vm);
    for (unsigned i = 0; i < 4; i++) {
        scribble(vm, rand, i * 100);
        load(vm, i / 2 ? "two" : "one", i / 2 ? two : one);
    }
    vm_fill(vm, HIGH, SIZE - HIGH, 0xa5);
    load(vm, "one", one);
    vm_fill(vm, HIGH, SIZE - HIGH, 0);
    load(vm, "one", one);
    g_rand_free(rand);
}

static void test_save_and_load(const void *opaque)
{
    const Case *c = opaque;
    g_autofree char *object = vm_object(c->strategy, c->props);
    Vm *vm;

    if (mem_skip(c->kind)) {
        return;
    }
    use_small_pages(c->small_pages);
    vm = vm_start(c->kind, SIZE, object);
    save_and_load(vm);
    vm_end(vm);
    use_small_pages(false);
}

static void assert_strategy(Vm *vm, const char *strategy)
{
    g_autoptr(QDict) block = vm_query_block(vm, "ram");

    g_assert_cmpstr(qdict_get_str(block, "strategy"), ==, strategy);
}

/* RAM from a file that another QEMU has left, again and again */
static void test_template(const void *opaque)
{
    const Case *c = opaque;
    /* A part of a host page can be copied, but not mapped */
    bool mapped = c->kind == MEM_ANON && !c->small_pages;
    g_autofree char *dir = g_strdup_printf("/dev/shm/ram-reset-test-%d",
                                           getpid());
    g_autofree char *props = g_strdup_printf("%s,template-dir=%s", c->props,
                                             dir);
    g_autofree char *object = vm_object(c->strategy, props);
    g_autofree char *again = g_strdup_printf("%s -loadvm one", object);
    g_autofree char *rm = g_strdup_printf("rm -r %s", dir);
    g_autofree uint8_t *one = NULL;
    GRand *rand = g_rand_new_with_seed(10);
    Vm *vm;

    g_assert_cmpint(g_mkdir(dir, 0700), ==, 0);
    use_small_pages(c->small_pages);
    vm = vm_start(c->kind, SIZE, object);
    scribble(vm, rand, 500);
    vm_save(vm, "one");
    one = vm_content(vm);
    for (unsigned i = 0; i < 2; i++) {
        vm_stop(vm);
        vm_run(vm, c->kind, SIZE, again);
        vm_assert_content(vm, one);
        assert_strategy(vm, mapped ? "template" : "memset");
        for (unsigned j = 1; j < 4; j++) {
            scribble(vm, rand, 100 * j);
            load(vm, "one", one);
        }
    }
    vm_end(vm);
    use_small_pages(false);
    g_assert_true(g_spawn_command_line_sync(rm, NULL, NULL, NULL, NULL));
    g_rand_free(rand);
}

static void add(const char *test, const Case *c, void (*func)(const void *))
{
    g_autofree char *path =
        g_strdup_printf("ram-reset/%s/%s/%s/%s%s",
                        c->small_pages ? "small-pages" : "machine", test,
                        mem_name(c->kind), c->strategy ?: "none",
                        strstr(c->props, "rewind=on") ? "-rewind" : "");

    qtest_add_data_func(path, c, func);
}

void add_machine_tests(void)
{
    static const char *const strategies[] = {
        NULL, "memset", "madvise", "remap", "auto", "auto-split",
    };
    static Case cases[2 * 2 * 2 * G_N_ELEMENTS(strategies)];
    bool small = qtest_has_machine("versatilepb");
    unsigned n = 0;

    for (unsigned s = 0; s < G_N_ELEMENTS(strategies); s++) {
        for (unsigned i = 0; i < 8; i++) {
            Case *c = &cases[n++];

            *c = (Case) {
                .strategy = strategies[s],
                .props = i & 1 ? ",verify=on,rewind=on" : ",verify=on",
                .kind = i & 2 ? MEM_MEMFD : MEM_ANON,
                .small_pages = i & 4,
            };
            if ((c->small_pages && !small) || (!strategies[s] && i & 1)) {
                continue;
            }
            if (c->small_pages) {
                add("save-and-load", c, test_save_and_load);
            }
            if (!g_strcmp0(strategies[s], "memset")) {
                add("template", c, test_template);
            }
        }
    }
}
