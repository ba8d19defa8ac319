/*
 * RAM reset: objects, properties, and the ways to ask for a load
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/units.h"
#include "qobject/qdict.h"
#include "qobject/qlist.h"
#include "framework.h"

#define SIZE (16 * MiB)
#define HIGH (1 * MiB)

/* Frees the error @rsp, which must have @text in its description */
static void assert_says(QDict *rsp, const char *text)
{
    g_assert_nonnull(strstr(qdict_get_str(rsp, "desc"), text));
    qobject_unref(rsp);
}

static void test_unknown_strategy(void)
{
    assert_no_start("-object ram-reset-magic,id=rr0", "ram-reset-magic",
                    "does not accept value");
}

static void test_abstract_class(void)
{
    assert_no_start("-object ram-reset,id=rr0", "ram-reset",
                    "does not accept value");
}

static void test_unknown_property(void)
{
    assert_no_start("-object ram-reset-madvise,id=rr0,speed=9", "speed",
                    "Invalid parameter");
}

static void test_too_many_threads(void)
{
    assert_no_start("-object ram-reset-memset,id=rr0,threads=65",
                    "ram-reset-memset", "takes 0 to 64, not 65");
}

static void test_memdev_does_not_exist(void)
{
    assert_no_start("-object ram-reset-madvise,id=rr0,memdev=nope",
                    "ram-reset-madvise 'rr0'", "memdev 'nope' does not exist");
}

static void test_memdev_is_no_memory_backend(void)
{
    assert_no_start("-object iothread,id=io0 "
                    "-object ram-reset-madvise,id=rr0,memdev=io0",
                    "ram-reset-madvise 'rr0'",
                    "memdev 'io0' is not a memory backend");
}

static void test_memdev_is_not_guest_ram(void)
{
    assert_no_start("-object memory-backend-ram,id=spare,size=1m "
                    "-object ram-reset-madvise,id=rr0,memdev=spare",
                    "ram-reset-madvise 'rr0'",
                    "memdev 'spare' is not used as guest RAM");
}

static void test_two_objects_cover_all(void)
{
    assert_no_start("-object ram-reset-madvise,id=rr0 "
                    "-object ram-reset-memset,id=rr1",
                    "'rr0' and 'rr1'", "both cover every RAM block");
}

static void test_two_objects_cover_one_block(void)
{
    const char *id = the_machine()->ram_id;
    g_autofree char *args =
        g_strdup_printf("-object ram-reset-madvise,id=rr0,memdev=%s "
                        "-object ram-reset-memset,id=rr1,memdev=%s", id, id);
    g_autofree char *message =
        g_strdup_printf("both cover memory backend '%s'", id);

    assert_no_start(args, "'rr0' and 'rr1'", message);
}

/* An object that names a block wins over one for all blocks, in any order */
static void test_memdev_wins(const void *order)
{
    static const char named[] = "-object ram-reset-madvise,id=rr1,memdev=ram";
    static const char all[] = "-object ram-reset-memset,id=rr0";
    g_autofree char *objects = g_strdup_printf("%s %s", order ? named : all,
                                               order ? all : named);
    g_autofree char *extra = vm_dimm(objects, "memory-backend-ram,size=8m");
    Vm *vm = vm_start(MEM_ANON, SIZE, extra);
    QDict *ram, *more;

    vm_save(vm, "clean");
    vm_fill(vm, DIMM, MiB, 1);
    vm_load(vm, "clean");
    g_assert_cmphex(vm_byte(vm, DIMM), ==, 0);
    ram = vm_query_block(vm, "ram");
    more = vm_query_block(vm, "more");
    g_assert_cmpstr(qdict_get_str(ram, "object"), ==, "rr1");
    g_assert_cmpstr(qdict_get_str(ram, "strategy"), ==, "madvise");
    g_assert_cmpstr(qdict_get_str(more, "object"), ==, "rr0");
    g_assert_cmpstr(qdict_get_str(more, "strategy"), ==, "memset");
    qobject_unref(ram);
    qobject_unref(more);
    vm_end(vm);
}

/* Objects are added and removed while the machine runs */
static void test_object_add_and_del(void)
{
    Vm *vm = vm_start(MEM_ANON, SIZE, "");
    QDict *rsp, *block;

    vm_save(vm, "clean");
    rsp = qtest_qmp_assert_failure_ref(vm->qts,
        "{'execute': 'object-add', 'arguments': {'id': 'rr0',"
        " 'qom-type': 'ram-reset-madvise', 'memdev': 'nope'}}");
    assert_says(rsp, "does not exist");

    qtest_qmp_assert_success(vm->qts,
        "{'execute': 'object-add', 'arguments': {'id': 'rr0',"
        " 'qom-type': 'ram-reset-madvise', 'memdev': 'ram'}}");
    rsp = qtest_qmp_assert_failure_ref(vm->qts,
        "{'execute': 'object-add', 'arguments': {'id': 'rr1',"
        " 'qom-type': 'ram-reset-memset', 'memdev': 'ram'}}");
    assert_says(rsp, "'rr0' and 'rr1'");
    rsp = qtest_qmp_assert_failure_ref(vm->qts,
        "{'execute': 'qom-set', 'arguments': {'path': '/objects/rr0',"
        " 'property': 'memdev', 'value': 'other'}}");
    assert_says(rsp, "cannot change");

    vm_load(vm, "clean");
    block = vm_query_block(vm, "ram");
    g_assert_cmpstr(qdict_get_str(block, "strategy"), ==, "madvise");
    qobject_unref(block);

    qtest_qmp_assert_success(vm->qts,
        "{'execute': 'object-del', 'arguments': {'id': 'rr0'}}");
    vm_fill(vm, HIGH, MiB, 1);
    vm_load(vm, "clean");
    g_assert_cmphex(vm_byte(vm, HIGH), ==, 0);
    g_assert_null(vm_query_block(vm, "ram"));
    vm_end(vm);
}

/* For memory that is plugged later, the object comes before the backend */
static void test_hugefile_of_a_new_dimm(void)
{
    g_autofree char *file = NULL, *state = NULL;
    QDict *rsp, *block;
    Vm *vm;

    if (mem_skip(MEM_HUGETLB_FILE)) {
        return;
    }
    vm = vm_start(MEM_HUGETLB_FILE, SIZE, "-m 16m,maxmem=1g,slots=2");
    file = g_strdup_printf("%s-dimm", vm->ram_file);
    state = g_strdup_printf("%s.state", vm->disk);
    qtest_qmp_assert_success(vm->qts,
        "{'execute': 'object-add', 'arguments': {'id': 'rr1',"
        " 'qom-type': 'ram-reset-hugefile', 'memdev': 'more',"
        " 'unlink': 'never', 'state': %s}}", state);
    for (unsigned i = 0; i < 2; i++) {
        qtest_qmp_assert_success(vm->qts,
            "{'execute': 'object-add', 'arguments': {'id': 'more',"
            " 'qom-type': 'memory-backend-file', 'mem-path': %s,"
            " 'share': true, 'size': 33554432}}", file);
        if (!i) {
            qtest_qmp_assert_success(vm->qts,
                "{'execute': 'object-del', 'arguments': {'id': 'more'}}");
        }
    }
    rsp = qtest_qmp_assert_failure_ref(vm->qts,
        "{'execute': 'object-del', 'arguments': {'id': 'rr1'}}");
    assert_says(rsp, "in use");
    rsp = qtest_qmp_assert_failure_ref(vm->qts,
        "{'execute': 'qom-set', 'arguments': {'path': '/objects/rr1',"
        " 'property': 'unlink', 'value': 'always'}}");
    assert_says(rsp, "in use");
    qtest_qmp_assert_success(vm->qts,
        "{'execute': 'device_add', 'arguments': {'driver': 'pc-dimm',"
        " 'memdev': 'more', 'id': 'dimm0'}}");

    vm_save(vm, "clean");
    vm_fill(vm, DIMM, 4 * MiB, 1);
    vm_load(vm, "clean");
    g_assert_cmphex(vm_byte(vm, DIMM), ==, 0);
    g_assert_cmphex(vm_byte(vm, DIMM + 4 * MiB - 1), ==, 0);
    block = vm_query_block(vm, "more");
    g_assert_cmpstr(qdict_get_str(block, "strategy"), ==, "hugefile");
    qobject_unref(block);

    /* The object is too late: the backend was made without it */
    rsp = qtest_qmp_assert_failure_ref(vm->qts,
        "{'execute': 'object-add', 'arguments': {'id': 'rr2',"
        " 'qom-type': 'ram-reset-hugefile', 'memdev': 'ram'}}");
    assert_says(rsp, "created without it");
    vm_end(vm);
    unlink(file);
    unlink(state);
}

static void assert_loaded(Vm *vm, unsigned loads)
{
    g_autoptr(QDict) info = vm_query(vm);
    QDict *last = qdict_get_qdict(info, "last-load");
    QDict *phases = qdict_get_qdict(last, "phases");
    static const char *const names[] = {
        "check", "disk-revert", "system-reset", "ram-reset", "ram-load",
        "device-load", "verify",
    };
    int64_t sum = 0;

    g_assert_cmpint(qdict_get_int(info, "loads"), ==, loads);
    g_assert_cmpstr(qdict_get_str(last, "tag"), ==, "clean");
    g_assert_true(qdict_get_bool(last, "success"));
    for (unsigned i = 0; i < G_N_ELEMENTS(names); i++) {
        g_assert_cmpint(qdict_get_int(phases, names[i]), >, 0);
        sum += qdict_get_int(phases, names[i]);
    }
    g_assert_cmpint(sum, ==, qdict_get_int(phases, "total"));
    g_assert_cmphex(vm_byte(vm, HIGH), ==, 0x11);
    g_assert_cmphex(vm_byte(vm, 2 * HIGH), ==, 0);
}

/* QEMU has made up the name of the disk's node */
static char *disk_node(Vm *vm)
{
    g_autoptr(QDict) rsp =
        qtest_qmp(vm->qts, "{'execute': 'query-named-block-nodes'}");
    QListEntry *e;

    QLIST_FOREACH_ENTRY(qdict_get_qlist(rsp, "return"), e) {
        QDict *node = qobject_to(QDict, qlist_entry_obj(e));

        if (!strcmp(qdict_get_str(node, "drv"), "qcow2")) {
            return g_strdup(qdict_get_str(node, "node-name"));
        }
    }
    g_assert_not_reached();
}

static void wait_for_job(Vm *vm, const char *id)
{
    for (;;) {
        g_autoptr(QDict) rsp = qtest_qmp(vm->qts, "{'execute': 'query-jobs'}");
        QDict *job = qobject_to(QDict, qlist_entry_obj(
                                qlist_first(qdict_get_qlist(rsp, "return"))));

        if (!strcmp(qdict_get_str(job, "status"), "concluded")) {
            g_assert_false(qdict_haskey(job, "error"));
            break;
        }
        g_usleep(1000);
    }
    qtest_qmp_assert_success(vm->qts,
        "{'execute': 'job-dismiss', 'arguments': {'id': %s}}", id);
}

static void load_by_qmp(Vm *vm)
{
    g_autofree char *node = disk_node(vm);

    qtest_qmp_assert_success(vm->qts,
        "{'execute': 'snapshot-load', 'arguments': {'job-id': 'load0',"
        " 'tag': 'clean', 'vmstate': %s, 'devices': [%s]}}", node, node);
    wait_for_job(vm, "load0");
}

/* HMP loadvm, QMP snapshot-load and -loadvm are one path */
static void test_every_way_to_load(const void *strategy)
{
    g_autofree char *object = vm_object(strategy, ",verify=on");
    g_autofree char *loadvm = g_strdup_printf("%s -loadvm clean", object);
    g_autofree char *text = NULL;
    Vm *vm = vm_start(MEM_MEMFD, SIZE, object);

    vm_fill(vm, HIGH, MiB, 0x11);
    vm_save(vm, "clean");
    vm_fill(vm, HIGH, 2 * MiB, 0x22);
    vm_load(vm, "clean");
    assert_loaded(vm, 1);

    vm_fill(vm, HIGH, 2 * MiB, 0x33);
    load_by_qmp(vm);
    assert_loaded(vm, 2);

    text = qtest_hmp(vm->qts, "info ram-reset");
    g_assert_nonnull(strstr(text, "Loads           2 done\r\n"));
    g_assert_nonnull(strstr(text, strategy));

    vm_stop(vm);
    vm_run(vm, MEM_MEMFD, SIZE, loadvm);
    assert_loaded(vm, 1);
    vm_end(vm);
}

void add_object_tests(void)
{
    qtest_add_func("ram-reset/object/unknown-strategy", test_unknown_strategy);
    qtest_add_func("ram-reset/object/abstract-class", test_abstract_class);
    qtest_add_func("ram-reset/object/unknown-property", test_unknown_property);
    qtest_add_func("ram-reset/object/too-many-threads", test_too_many_threads);
    qtest_add_func("ram-reset/object/memdev-does-not-exist",
                   test_memdev_does_not_exist);
    qtest_add_func("ram-reset/object/memdev-is-no-memory-backend",
                   test_memdev_is_no_memory_backend);
    qtest_add_func("ram-reset/object/memdev-is-not-guest-ram",
                   test_memdev_is_not_guest_ram);
    qtest_add_func("ram-reset/object/two-objects-cover-all",
                   test_two_objects_cover_all);
    qtest_add_func("ram-reset/object/two-objects-cover-one-block",
                   test_two_objects_cover_one_block);
    qtest_add_data_func("ram-reset/object/memdev-wins/first", "",
                        test_memdev_wins);
    qtest_add_data_func("ram-reset/object/memdev-wins/last", NULL,
                        test_memdev_wins);
    qtest_add_func("ram-reset/object/hugefile-of-a-new-dimm",
                   test_hugefile_of_a_new_dimm);
    qtest_add_func("ram-reset/object/object-add-and-del",
                   test_object_add_and_del);
    add_per_strategy("object/every-way-to-load", test_every_way_to_load);
}
