/*
 * RAM reset: choosing a strategy
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/cutils.h"
#include "qemu/units.h"
#include "qobject/qdict.h"
#include "qobject/qlist.h"
#include "qobject/qnum.h"
#include "framework.h"

#define SIZE  (64 * MiB)
#define PAGE  (4 * KiB)
#define CHUNK (2 * MiB)
#define BASE  (16 * MiB)

static Vm *vm_start_auto(MemKind kind, const char *props, const char *costs)
{
    g_autofree char *all = g_strdup_printf(",costs=%s%s", costs, props);
    g_autofree char *object = vm_object("auto", all);

    return vm_start(kind, SIZE, object);
}

/* Called at the end: reading memory populates it */
static void check_and_end(Vm *vm)
{
    g_autofree uint8_t *content = vm_content(vm);

    g_assert_true(buffer_is_zero(content + BASE, SIZE - BASE));
    vm_end(vm);
}

static void assert_strategy(Vm *vm, const char *strategy)
{
    g_autoptr(QDict) block = vm_query_block(vm, "ram");

    g_assert_cmpstr(qdict_get_str(block, "strategy"), ==, strategy);
    g_assert_false(qdict_get_bool(block, "fallback"));
}

/* The value of @key in the decision on block "ram" */
static uint64_t decision(Vm *vm, const char *key)
{
    g_autoptr(QDict) block = vm_query_block(vm, "ram");

    return qdict_get_int(qdict_get_qdict(block, "decision"), key);
}

/* The guest uses @bytes again, and each reset writes to some pages */
static void assert_again(Vm *vm, uint64_t bytes)
{
    uint64_t again = decision(vm, "again");

    g_assert_cmpuint(again, >=, bytes);
    g_assert_cmpuint(again, <=, bytes + the_machine()->reset_pages * PAGE);
}

/* The candidate with this name, or NULL */
static QDict *candidate(Vm *vm, const char *strategy)
{
    g_autoptr(QDict) block = vm_query_block(vm, "ram");
    QList *list = qdict_get_qlist(qdict_get_qdict(block, "decision"),
                                  "candidates");
    QListEntry *e;

    QLIST_FOREACH_ENTRY(list, e) {
        QDict *c = qobject_to(QDict, qlist_entry_obj(e));

        if (!strcmp(qdict_get_str(c, "strategy"), strategy)) {
            return qobject_ref(c);
        }
    }
    return NULL;
}

/* Firmware has used memory below BASE, so discarding may be better there */
static void assert_cleared(Vm *vm)
{
    g_assert_cmpuint(decision(vm, "discarded"), <=, BASE);
}

/* Only the costs decide */
static void test_choice(const void *opaque)
{
    MemKind kind = GPOINTER_TO_INT(opaque);
    static const struct {
        double clear, discard, remap;
        const char *strategy;
    } cases[] = {
        { 1, 1000, 1000, "memset" }, { 1000, 1, 1000, "madvise" },
        { 1000, 1000, 1, "remap" },
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *costs = costs_file(cases[i].clear, cases[i].discard,
                                            cases[i].remap, 1);
        Vm *vm = vm_start_auto(kind, ",verify=on", costs);

        vm_save(vm, "clean");
        for (unsigned round = 0; round < 3; round++) {
            vm_fill(vm, BASE, SIZE - BASE, 1);
            vm_load(vm, "clean");
            assert_strategy(vm, cases[i].strategy);
            g_assert_cmpuint(decision(vm, "resident"), >=, SIZE - BASE);
        }
        check_and_end(vm);
        unlink(costs);
    }
}

/* The decision has the refused candidates and the reasons */
static void test_refused_candidates(void)
{
    g_autofree char *costs = costs_file(1000, 1, 1, 1);
    Vm *vm = vm_start_auto(MEM_FILE, "", costs);
    g_autoptr(QDict) discard = NULL, remap = NULL, clear = NULL;

    vm_save(vm, "clean");
    vm_fill(vm, BASE, SIZE - BASE, 1);
    vm_load(vm, "clean");
    assert_strategy(vm, "memset");
    discard = candidate(vm, "madvise");
    remap = candidate(vm, "remap");
    clear = candidate(vm, "memset");
    g_assert_nonnull(strstr(qdict_get_str(discard, "refused"),
                            "private mapping"));
    g_assert_nonnull(strstr(qdict_get_str(remap, "refused"), "not a memfd"));
    g_assert_false(qdict_haskey(clear, "refused"));
    g_assert_cmpuint(qdict_get_int(clear, "resident"), >=, SIZE - BASE);
    vm_end(vm);
    unlink(costs);
}

/* Write a byte of each page of [@from, @to) */
static void touch(Vm *vm, uint64_t from, uint64_t to)
{
    for (; from < to; from += PAGE) {
        vm_fill(vm, from, 1, 1);
    }
}

/*
 * The guest uses the lower part in each round, and the upper part once.
 * Clearing a page costs twice as much as discarding it, and a fault costs more
 * than both, so memory that is used again is cleared in place.
 */
static void test_split(const void *opaque)
{
    MemKind kind = GPOINTER_TO_INT(opaque);
    g_autofree char *costs = costs_file(200, 100, 1e6, 1000);
    uint64_t half = BASE + (SIZE - BASE) / 2;
    Vm *vm = vm_start_auto(kind, ",verify=on", costs);

    vm_save(vm, "clean");
    touch(vm, BASE, SIZE);
    vm_load(vm, "clean");
    /* At first the object expects that all present memory will be used again */
    assert_cleared(vm);
    touch(vm, BASE, half);
    vm_load(vm, "clean");
    touch(vm, BASE, half);
    vm_load(vm, "clean");
    assert_strategy(vm, "split");
    g_assert_cmpuint(decision(vm, "discarded"), >=, SIZE - half);
    g_assert_cmpuint(decision(vm, "discarded"), <, SIZE - half + BASE + CHUNK);
    assert_again(vm, half - BASE);
    /* No memory is left to discard */
    touch(vm, BASE, half);
    vm_load(vm, "clean");
    assert_cleared(vm);
    assert_again(vm, half - BASE);
    check_and_end(vm);
    unlink(costs);
}

/* auto finds the pages that the guest has touched, after any strategy */
static void test_learns(const void *opaque)
{
    const char *strategy = opaque;
    bool clears = !strcmp(strategy, "memset");
    /* Costs that make the object choose @strategy */
    g_autofree char *costs = costs_file(clears ? 1 : 1e5, clears ? 1e5 : 1,
                                        1e6, 1);
    static const unsigned pages[] = { 1000, 1000, 10, 10, 0, 0, 5000, 5000 };
    Vm *vm = vm_start_auto(MEM_ANON, "", costs);

    vm_fill(vm, BASE, 100 * PAGE, 7);
    vm_save(vm, "clean");
    vm_load(vm, "clean");
    vm_load(vm, "clean");
    for (unsigned i = 0; i < G_N_ELEMENTS(pages); i++) {
        /*
         * Clearing in place finds the pages while it clears, for the next load
         */
        bool told = !clears || i % 2 == 1;

        touch(vm, 2 * BASE, 2 * BASE + pages[i] * PAGE);
        vm_load(vm, "clean");
        g_assert_cmpuint(decision(vm, "stored"), >=, 100 * PAGE);
        g_assert_cmpuint(decision(vm, "stored"), <, 400 * PAGE);
        if (told) {
            assert_again(vm, pages[i] * PAGE);
        }
    }
    vm_end(vm);
    unlink(costs);
}

static void test_objectives(void)
{
    static const char *const objectives[][2] = {
        /*
         * Clearing costs 100; discarding costs 50, and 450 for the guest's
         * faults
         */
        { "total", "memset" }, { "latency", "madvise" },
        { "footprint", "madvise" },
    };
    g_autofree char *costs = costs_file(100, 50, 1e6, 400);

    for (unsigned i = 0; i < G_N_ELEMENTS(objectives); i++) {
        g_autofree char *props = g_strdup_printf(",objective=%s",
                                                 objectives[i][0]);
        Vm *vm = vm_start_auto(MEM_ANON, props, costs);

        vm_save(vm, "clean");
        for (unsigned round = 0; round < 3; round++) {
            touch(vm, BASE, SIZE);
            vm_load(vm, "clean");
            if (strcmp(objectives[i][1], "memset")) {
                assert_strategy(vm, objectives[i][1]);
            } else {
                assert_cleared(vm);
            }
        }
        check_and_end(vm);
    }
    unlink(costs);
}

/* The calibration of the first object */
static QDict *query_auto(Vm *vm)
{
    g_autoptr(QDict) info = vm_query(vm);
    QDict *obj = qobject_to(QDict, qlist_peek(qdict_get_qlist(info,
                                                              "objects")));

    return qobject_ref(qdict_get_qdict(obj, "auto"));
}

static unsigned kinds_known(Vm *vm)
{
    g_autoptr(QDict) info = query_auto(vm);

    return qlist_size(qdict_get_qlist(info, "costs"));
}

static void test_calibration(void)
{
    g_autofree char *object = vm_object("auto", "");
    g_autofree char *extra = g_strdup_printf("%s -m 64m,maxmem=1g,slots=1",
                                             object);
    Vm *vm = vm_start(MEM_ANON, SIZE, extra);
    g_autoptr(QDict) info = query_auto(vm);
    QListEntry *e;

    g_test_message("calibrated in %.1f ms",
                   qdict_get_int(info, "calibration-ns") / 1e6);
    g_assert_cmpuint(qdict_get_int(info, "calibration-ns"), >, 0);
    g_assert_cmpuint(qlist_size(qdict_get_qlist(info, "costs")), ==, 1);
    QLIST_FOREACH_ENTRY(qdict_get_qlist(info, "costs"), e) {
        QDict *costs = qobject_to(QDict, qlist_entry_obj(e));

        g_assert_cmpstr(qdict_get_str(costs, "kind"), ==, "anonymous");
        g_assert_cmpfloat(qdict_get_double(costs, "test"), >, 0);
        g_assert_cmpfloat(qdict_get_double(costs, "clear"), >, 0);
        g_assert_cmpfloat(qdict_get_double(costs, "discard"), >, 0);
        g_assert_cmpfloat(qdict_get_double(costs, "fault"), >, 0);
        g_assert_cmpfloat(qdict_get_double(costs, "guest-fault"), ==, 0);
    }
    /* Plug memory of another kind */
    qtest_qmp_assert_success(vm->qts,
        "{'execute': 'object-add', 'arguments': {'id': 'more', 'share': true,"
        " 'qom-type': 'memory-backend-memfd', 'size': 67108864}}");
    qtest_qmp_assert_success(vm->qts,
        "{'execute': 'device_add', 'arguments': {'driver': 'pc-dimm',"
        " 'id': 'dimm0', 'memdev': 'more'}}");
    vm_save(vm, "clean");
    vm_load(vm, "clean");
    g_assert_cmpuint(kinds_known(vm), ==, 2);
    vm_end(vm);
}

/*
 * Testing a page that was used once wastes 100.  The page is discarded when its
 * tests have cost as much as discarding, 350.  Pages that are used again and
 * again stay.
 */
static void test_owed(const void *opaque)
{
    MemKind kind = GPOINTER_TO_INT(opaque);
    g_autofree char *costs = costs_file(100, 350, 1e6, 1000);
    uint64_t once = 2 * BASE, used = once - PAGE * 1000;
    uint64_t owed = 0;
    Vm *vm = vm_start_auto(kind, ",verify=on", costs);

    vm_save(vm, "clean");
    touch(vm, used, SIZE);
    vm_load(vm, "clean");
    assert_cleared(vm);
    /*
     * The next load sees that the guest uses only some; the load after it
     * decides
     */
    for (unsigned i = 0; i < 5; i++) {
        g_autoptr(QDict) clear = NULL;

        touch(vm, used, once);
        vm_load(vm, "clean");
        clear = candidate(vm, "memset");
        g_assert_cmpuint(qdict_get_int(clear, "owed"), >=, owed);
        owed = qdict_get_int(clear, "owed");
        if (decision(vm, "discarded") > BASE) {
            break;
        }
        g_assert_cmpuint(decision(vm, "resident"), >=, SIZE - used);
    }
    g_assert_cmpuint(owed, >=, (SIZE - once) / PAGE * 200);
    /* A save of shared memory populates all of it */
    g_assert_cmpuint(owed, <=, SIZE / PAGE * 400);
    assert_strategy(vm, "split");
    for (unsigned i = 0; i < 2; i++) {
        g_autoptr(QDict) clear = NULL;

        touch(vm, used, once);
        vm_load(vm, "clean");
        clear = candidate(vm, "memset");
        g_assert_cmpuint(decision(vm, "resident"), <, BASE + 1000 * PAGE);
        g_assert_cmpuint(qdict_get_int(clear, "owed"), <, owed / 4);
        assert_cleared(vm);
    }
    check_and_end(vm);
    unlink(costs);
}

static void test_bad_costs(void)
{
    g_autofree char *costs = costs_file(1, 1, 1, -1);
    g_autofree char *args = g_strdup_printf(
        "-m 16m -object ram-reset-auto,id=rr0,costs=%s", costs);

    assert_no_start(args, "ram-reset-auto 'rr0'", "fault=-1");
    unlink(costs);
    assert_no_start(args, "ram-reset-auto 'rr0'", costs);
    assert_no_start("-m 16m -object ram-reset-auto,id=rr0,objective=speed",
                    "objective", "speed");
}

static void add(const char *test, MemKind kind, void (*func)(const void *))
{
    g_autofree char *path = g_strdup_printf("ram-reset/auto/%s/%s", test,
                                            mem_name(kind));

    qtest_add_data_func(path, GINT_TO_POINTER(kind), func);
}

void add_auto_tests(void)
{
    static const MemKind kinds[] = { MEM_ANON, MEM_MEMFD };

    for (unsigned i = 0; i < G_N_ELEMENTS(kinds); i++) {
        add("choice", kinds[i], test_choice);
        add("split", kinds[i], test_split);
        add("owed", kinds[i], test_owed);
    }
    qtest_add_func("ram-reset/auto/refused-candidates",
                   test_refused_candidates);
    qtest_add_data_func("ram-reset/auto/learns/memset", "memset", test_learns);
    qtest_add_data_func("ram-reset/auto/learns/madvise", "madvise",
                        test_learns);
    qtest_add_func("ram-reset/auto/objectives", test_objectives);
    qtest_add_func("ram-reset/auto/calibration", test_calibration);
    qtest_add_func("ram-reset/auto/bad-costs", test_bad_costs);
}
