/*
 * RAM reset: a load that undoes what has changed
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qobject/qdict.h"
#include "rewind.h"

#define SIZE     REWIND_SIZE
#define PAGE     (4 * KiB)
#define HIGH     (1 * MiB)
#define NR_PAGES (SIZE / PAGE)

static void assert_rewound(Vm *vm)
{
    g_autoptr(QDict) info = vm_query(vm);
    QDict *load = qdict_get_qdict(info, "last-load");

    if (!qdict_get_bool(load, "rewound")) {
        g_test_message("loaded as a whole: %s",
                       qdict_get_try_str(load, "blocker"));
    }
    g_assert_true(qdict_get_bool(load, "rewound"));
    g_assert_false(qdict_haskey(load, "blocker"));
    g_assert_cmpstr(qdict_get_str(qdict_get_qdict(info, "rewind"), "tag"), ==,
                    qdict_get_str(load, "tag"));
}

static void assert_blocker(Vm *vm, const char *blocker)
{
    g_autoptr(QDict) info = vm_query(vm);
    QDict *load = qdict_get_qdict(info, "last-load");

    g_assert_false(qdict_get_bool(load, "rewound"));
    if (!strstr(qdict_get_str(load, "blocker"), blocker)) {
        g_test_message("blocker: %s", qdict_get_str(load, "blocker"));
    }
    g_assert_nonnull(strstr(qdict_get_str(load, "blocker"), blocker));
    g_assert_true(qdict_haskey(load, "blocker-info"));
}

static uint64_t of_block(Vm *vm, const char *what)
{
    g_autoptr(QDict) block = vm_query_block(vm, "ram");

    g_assert_cmpstr(qdict_get_str(block, "strategy"), ==, "rewind");
    return qdict_get_int(block, what);
}

/* A load undoes all written pages, and touches no others */
static void test_undoes_what_changed(const void *opaque)
{
    const RewindCase *c = opaque;
    g_autofree char *object = rewind_object(c->strategy, ",verify=on");
    g_autofree uint8_t *content = NULL;
    GRand *rand;
    Vm *vm;

    if (mem_skip(c->kind)) {
        return;
    }
    rand = g_rand_new_with_seed(5);
    vm = vm_start(c->kind, SIZE, object);
    rewind_scribble(vm, rand, 2000);
    vm_save(vm, "one");
    content = vm_content(vm);
    for (unsigned round = 0; round < 5; round++) {
        unsigned n = rewind_scribble(vm, rand, round ? 10 + 400 * round : 0);
        uint64_t restored;

        vm_load(vm, "one");
        vm_assert_content(vm, content);
        assert_rewound(vm);
        restored = of_block(vm, "copied-pages") +
                   of_block(vm, "cleared-pages") +
                   of_block(vm, "discarded-pages");
        g_assert_cmpuint(of_block(vm, "dirty-pages"), ==, n);
        g_assert_cmpuint(restored, <=, n);
        g_assert_cmpuint(of_block(vm, "skipped-pages"), ==, NR_PAGES - n);
        if (!strcmp(c->strategy, "madvise") && mem_page_size(c->kind) == PAGE &&
            c->kind != MEM_FILE) {
            g_assert_cmpuint(of_block(vm, "cleared-pages"), ==, 0);
        } else {
            g_assert_cmpuint(of_block(vm, "discarded-pages"), ==, 0);
        }
    }
    vm_end(vm);
    g_rand_free(rand);
}

/* A load can rewind to the snapshot that was loaded or saved last */
static void test_after_a_load(const void *opaque)
{
    const RewindCase *c = opaque;
    g_autofree char *object = rewind_object(c->strategy, ",verify=on");
    g_autofree uint8_t *one = NULL, *two = NULL;
    GRand *rand;
    Vm *vm;

    if (mem_skip(c->kind)) {
        return;
    }
    rand = g_rand_new_with_seed(6);
    vm = vm_start(c->kind, SIZE, object);
    rewind_scribble(vm, rand, 1000);
    vm_save(vm, "one");
    one = vm_content(vm);
    rewind_scribble(vm, rand, 1000);
    vm_save(vm, "two");
    two = vm_content(vm);
    rewind_scribble(vm, rand, 10);

    vm_load(vm, "one");
    assert_rewound(vm);
    vm_assert_content(vm, one);
    rewind_scribble(vm, rand, 100);
    vm_load(vm, "one");
    assert_rewound(vm);
    vm_assert_content(vm, one);
    vm_load(vm, "two");
    assert_rewound(vm);
    vm_assert_content(vm, two);
    rewind_scribble(vm, rand, 100);
    vm_load(vm, "two");
    assert_rewound(vm);
    vm_assert_content(vm, two);

    /* Another QEMU has no baseline yet */
    vm_stop(vm);
    vm_run(vm, c->kind, SIZE, object);
    rewind_scribble(vm, rand, 100);
    vm_load(vm, "one");
    assert_blocker(vm, "nothing has been loaded or saved");
    vm_load(vm, "two");
    assert_blocker(vm, "no copy of the snapshot's RAM");
    vm_load(vm, "one");
    assert_rewound(vm);
    vm_assert_content(vm, one);
    rewind_scribble(vm, rand, 100);
    vm_load(vm, "one");
    assert_rewound(vm);
    vm_assert_content(vm, one);
    vm_end(vm);
    g_rand_free(rand);
}

/* A load for which there is a blocker, and the next, for which there is none */
static void load_with_blocker(Vm *vm, GRand *rand, const uint8_t *content,
                              const char *blocker)
{
    rewind_scribble(vm, rand, 100);
    vm_load(vm, "one");
    vm_assert_content(vm, content);
    assert_blocker(vm, blocker);
    rewind_scribble(vm, rand, 100);
    vm_load(vm, "one");
    vm_assert_content(vm, content);
    assert_rewound(vm);
}

static void wait_for_migration(Vm *vm)
{
    for (;;) {
        QDict *info = qtest_qmp_assert_success_ref(vm->qts,
                          "{'execute': 'query-migrate'}");
        const char *status = qdict_get_str(info, "status");
        bool done = !strcmp(status, "completed");

        g_assert_cmpstr(status, !=, "failed");
        qobject_unref(info);
        if (done) {
            return;
        }
        g_usleep(1000);
    }
}

static void test_blockers(const void *strategy)
{
    g_autofree char *object = rewind_object(strategy, ",verify=on");
    g_autofree char *extra = g_strdup_printf("%s -m 16m,maxmem=1g,slots=2",
                                             object);
    g_autofree uint8_t *content = NULL;
    GRand *rand = g_rand_new_with_seed(7);
    Vm *vm = vm_start(MEM_MEMFD, SIZE, extra);

    rewind_scribble(vm, rand, 1000);
    vm_save(vm, "one");
    content = vm_content(vm);

    /* Save other content under the same name, then the first content again */
    rewind_scribble(vm, rand, 100);
    vm_save(vm, "other");
    rewind_scribble(vm, rand, 100);
    vm_load(vm, "one");
    assert_rewound(vm);
    vm_assert_content(vm, content);
    vm_hmp_ok(vm, "delvm one");
    vm_load_says(vm, "one", "does not exist");
    qtest_qmp_assert_success(vm->qts, "{'execute': 'cont'}");
    vm_save(vm, "one");
    rewind_scribble(vm, rand, 10);
    vm_load(vm, "one");
    assert_rewound(vm);
    vm_assert_content(vm, content);

    /* The migration uses the dirty log alone */
    qtest_qmp_assert_success(vm->qts,
        "{'execute': 'migrate', 'arguments': {'uri': 'exec:cat >/dev/null'}}");
    wait_for_migration(vm);
    qtest_qmp_assert_success(vm->qts, "{'execute': 'cont'}");
    load_with_blocker(vm, rand, content, "has used the dirty log");

    qtest_qmp_assert_success(vm->qts,
        "{'execute': 'object-add', 'arguments': {'qom-type': "
        "'memory-backend-ram', 'id': 'more', 'size': 8388608}}");
    qtest_qmp_assert_success(vm->qts,
        "{'execute': 'device_add', 'arguments': {'driver': 'pc-dimm', "
        "'id': 'dimm0', 'memdev': 'more'}}");
    vm_load_says(vm, "one", "does not fit");
    qtest_qmp_assert_success(vm->qts, "{'execute': 'cont'}");
    vm_save(vm, "one");
    rewind_scribble(vm, rand, 10);
    vm_load(vm, "one");
    assert_rewound(vm);
    vm_assert_content(vm, content);

    qtest_qmp_assert_success(vm->qts,
        "{'execute': 'qom-set', 'arguments': {'path': '/objects/rr0', "
        "'property': 'rewind', 'value': false}}");
    rewind_scribble(vm, rand, 100);
    vm_load(vm, "one");
    vm_assert_content(vm, content);
    qtest_qmp_assert_success(vm->qts,
        "{'execute': 'qom-set', 'arguments': {'path': '/objects/rr0', "
        "'property': 'rewind', 'value': true}}");
    load_with_blocker(vm, rand, content, "ram-reset objects have been");
    vm_end(vm);
    g_rand_free(rand);
}

static void test_limit(const void *strategy)
{
    g_autofree char *object = rewind_object(strategy,
                                        ",rewind-limit=2m,verify=on");
    g_autofree char *warning = NULL;
    g_autofree uint8_t *content = NULL;
    GRand *rand = g_rand_new_with_seed(8);
    Vm *vm = vm_start(MEM_MEMFD, SIZE, object);

    vm_fill(vm, HIGH, 3 * MiB, 1);
    warning = qtest_hmp(vm->qts, "savevm one");
    g_assert_nonnull(strstr(warning, "warning: QEMU cannot rewind"));
    content = vm_content(vm);
    for (unsigned i = 0; i < 2; i++) {
        rewind_scribble(vm, rand, 100);
        vm_load(vm, "one");
        assert_blocker(vm, "rewind-limit=2097152");
        vm_assert_content(vm, content);
    }
    vm_fill(vm, HIGH, 3 * MiB, 0);
    vm_save(vm, "one");
    vm_fill(vm, HIGH, 3 * MiB, 1);
    vm_load(vm, "one");
    assert_rewound(vm);
    vm_end(vm);
    g_rand_free(rand);
}

static void add(const char *test, const RewindCase *c, void (*func)(const void *))
{
    g_autofree char *path = g_strdup_printf("ram-reset/rewind/%s/%s/%s", test,
                                            c->strategy, mem_name(c->kind));

    qtest_add_data_func(path, c, func);
}

void add_rewind_tests(void)
{
    /* ./test has each case in one of two, --all in both */
    for (unsigned i = 0; i < NR_REWIND_CASES; i++) {
        if (rounds(1, 0) || i % 2 == 0) {
            add("undoes-what-changed", &rewind_cases[i],
                test_undoes_what_changed);
        }
        if (rounds(1, 0) || i % 2 == 1) {
            add("after-a-load", &rewind_cases[i], test_after_a_load);
        }
    }
    qtest_add_data_func("ram-reset/rewind/blockers", "auto", test_blockers);
    qtest_add_data_func("ram-reset/rewind/limit", "memset", test_limit);
}
