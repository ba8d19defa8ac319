/*
 * RAM reset: after any load, every byte of RAM is the snapshot's
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/units.h"
#include "qobject/qdict.h"
#include "framework.h"

#define SIZE     (16 * MiB)
#define PAGE     (4 * KiB)
#define HIGH     (1 * MiB)

typedef struct Case {
    const char *strategy;       /* NULL for no object */
    MemKind kind;
} Case;

/* A page that a guest may write to: no ROM lies above it */
static uint64_t random_page(GRand *rand)
{
    uint64_t page = g_rand_int_range(rand, 0, SIZE / PAGE);

    return page * PAGE >= LOW_END && page * PAGE < HIGH ? HIGH : page * PAGE;
}

/* Fill, clear and write single bytes at random places */
static void scribble(Vm *vm, GRand *rand, unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        uint64_t addr = random_page(rand);

        switch (g_rand_int_range(rand, 0, 4)) {
        case 0:
            vm_fill(vm, addr, PAGE, 0);
            break;
        case 1:
            vm_fill(vm, addr + g_rand_int_range(rand, 0, PAGE), 1, 0xff);
            break;
        default:
            vm_random(vm, rand, addr, PAGE);
        }
    }
}

/* Change each page */
static void poison(Vm *vm, uint8_t byte)
{
    vm_fill(vm, 0, LOW_END, byte);
    vm_fill(vm, HIGH, SIZE - HIGH, byte);
}

/* Counters are exact, times are not */
static void check_counters(Vm *vm, const Case *c, const uint8_t *before,
                           const uint8_t *after)
{
    g_autoptr(QDict) block = vm_query_block(vm, "ram");
    uint64_t stored = pages_with_data(after, SIZE);
    const char *strategy, *reason;
    uint64_t discarded, cleared;

    if (!c->strategy) {
        g_assert_null(block);
        return;
    }
    strategy = expected_strategy(c->strategy, c->kind);
    reason = strategy ? "asked for by 'rr0'" : "the cheapest for 'total'";
    strategy = strategy ?: qdict_get_str(block, "strategy");
    g_assert_cmpstr(qdict_get_str(block, "strategy"), ==, strategy);
    g_assert_nonnull(strstr(qdict_get_str(block, "reason"),
                            expected_reason(c->strategy, c->kind) ?: reason));
    g_assert_cmpstr(qdict_get_str(block, "object"), ==, "rr0");
    g_assert_false(qdict_get_bool(block, "fallback"));
    g_assert_cmpuint(qdict_get_int(block, "size"), ==, SIZE);
    g_assert_cmpuint(qdict_get_int(block, "page-size"), ==,
                     mem_page_size(c->kind));
    g_assert_cmpuint(qdict_get_int(block, "copied-pages"), ==, stored);
    g_assert_cmpuint(qdict_get_int(block, "skipped-pages"), ==,
                     SIZE / PAGE - stored);
    g_assert_cmpuint(qdict_get_int(block, "checked-pages"), ==, 0);
    discarded = qdict_get_int(block, "discarded-pages");
    cleared = qdict_get_int(block, "cleared-pages");
    if (!strcmp(strategy, "memset") || !strcmp(strategy, "hugefile")) {
        /* A load does not clear pages that the snapshot overwrites */
        g_assert_cmpuint(discarded, ==, 0);
        g_assert_cmpuint(cleared, ==, pages_to_clear(before, after, SIZE));
    } else if (strcmp(strategy, "split")) {
        g_assert_cmpuint(discarded, ==, SIZE / PAGE);
        g_assert_cmpuint(cleared, ==, 0);
    }
    g_assert_cmpuint(qdict_get_int(block, "zeroed-bytes"), ==,
                     (discarded + cleared) * PAGE);
}

static void load_and_check(Vm *vm, const Case *c, const char *tag,
                           const uint8_t *expected)
{
    g_autofree uint8_t *before = vm_content(vm);

    vm_load(vm, tag);
    vm_assert_content(vm, expected);
    check_counters(vm, c, before, expected);
}

static void test_round_trip(const void *opaque)
{
    const Case *c = opaque;
    g_autofree char *object = vm_object(c->strategy, "");
    g_autofree uint8_t *first = NULL, *second = NULL;
    GRand *rand;
    Vm *vm;

    if (mem_skip(c->kind)) {
        return;
    }
    rand = g_rand_new_with_seed(4);
    vm = vm_start(c->kind, SIZE, object);

    /* Pages are dirty before the save */
    poison(vm, 0);
    scribble(vm, rand, 500);
    vm_save(vm, "first");
    first = vm_content(vm);
    g_assert_cmpuint(pages_with_data(first, SIZE), >, 100);
    if (c->kind == MEM_THP) {
        g_assert_cmpuint(vm_smaps_kib(vm, "AnonHugePages"), >, 0);
    }

    /* Make no page, some pages or all pages dirty */
    load_and_check(vm, c, "first", first);
    scribble(vm, rand, 500);
    load_and_check(vm, c, "first", first);
    poison(vm, 0xa5);
    load_and_check(vm, c, "first", first);

    /* Make pages dirty in two loads, between two snapshots */
    scribble(vm, rand, 1000);
    vm_save(vm, "second");
    second = vm_content(vm);
    g_assert_cmpint(memcmp(first, second, SIZE), !=, 0);
    load_and_check(vm, c, "first", first);
    load_and_check(vm, c, "second", second);
    poison(vm, 0x5a);
    load_and_check(vm, c, "second", second);
    load_and_check(vm, c, "first", first);

    vm_end(vm);
    g_rand_free(rand);
}

/* A load must not change the file behind a private mapping */
static void test_private_file_is_not_changed(const void *opaque)
{
    const Case *c = opaque;
    g_autofree char *object = vm_object(c->strategy, "");
    g_autofree char *was = NULL, *is = NULL;
    Vm *vm = vm_start(MEM_FILE, SIZE, object);

    g_assert_true(g_file_get_contents(vm->ram_file, &was, NULL, NULL));
    vm_save(vm, "first");
    poison(vm, 1);
    vm_load(vm, "first");
    g_assert_true(g_file_get_contents(vm->ram_file, &is, NULL, NULL));
    g_assert_cmpint(memcmp(was, is, SIZE), ==, 0);
    if (c->strategy) {
        g_autoptr(QDict) block = vm_query_block(vm, "ram");

        g_assert_cmpstr(qdict_get_str(block, "strategy"), ==,
                        expected_strategy(c->strategy, c->kind) ?: "memset");
    }
    vm_end(vm);
}

typedef enum Step { WRITE, SAVE, LOAD, NR_STEPS } Step;

/* Compare any sequence of writes, saves and loads with a model of RAM */
static void test_random_sequence(const void *opaque)
{
    const Case *c = opaque;
    g_autofree char *object = vm_object(c->strategy, ",verify=on");
    uint8_t *models[3] = { NULL };
    guint32 seed = g_test_rand_int();
    unsigned loads = 0;
    GRand *rand;
    Vm *vm;

    if (mem_skip(c->kind)) {
        return;
    }
    g_test_message("seed %u", seed);
    rand = g_rand_new_with_seed(seed);
    vm = vm_start(c->kind, SIZE, object);
    poison(vm, 0);

    /* A short sequence continues until it has loaded a snapshot */
    for (unsigned i = 0, n = rounds(30, 6); i < n || loads < 3; i++) {
        unsigned slot = g_rand_int_range(rand, 0, G_N_ELEMENTS(models));
        g_autofree char *tag = g_strdup_printf("slot%u", slot);

        switch (g_rand_int_range(rand, 0, NR_STEPS)) {
        case WRITE:
            if (g_rand_boolean(rand)) {
                scribble(vm, rand, 100);
            } else {
                poison(vm, g_rand_int_range(rand, 0, 256));
            }
            break;
        case SAVE:
            vm_save(vm, tag);
            g_free(models[slot]);
            models[slot] = vm_content(vm);
            break;
        case LOAD:
            if (models[slot]) {
                loads++;
                load_and_check(vm, c, tag, models[slot]);
            }
            break;
        }
    }
    for (unsigned i = 0; i < G_N_ELEMENTS(models); i++) {
        g_free(models[i]);
    }
    vm_end(vm);
    g_rand_free(rand);
}

static void add(const char *test, const Case *c, void (*func)(const void *))
{
    g_autofree char *path = g_strdup_printf("ram-reset/%s/%s/%s", test,
                                            c->strategy ?: "none",
                                            mem_name(c->kind));

    qtest_add_data_func(path, c, func);
}

/* This strategy serves one kind of memory only */
static void test_hugefile_is_refused(const void *opaque)
{
    const Case *c = opaque;
    g_autofree char *object = vm_object("hugefile", "");
    static const char *const backends[MEM__MAX] = {
        [MEM_ANON] = "memory-backend-ram",
        [MEM_THP] = "memory-backend-ram,share=on",
        [MEM_MEMFD] = "memory-backend-memfd,share=on",
        [MEM_HUGETLB] = "memory-backend-memfd,hugetlb=on,share=on",
        [MEM_HUGETLB_PRIVATE] = "memory-backend-memfd,hugetlb=on,share=off",
        [MEM_FILE] = "memory-backend-file,share=off,mem-path=ram",
    };
    g_autofree char *args =
        g_strdup_printf("-m 16m %s -object %s,id=ram,size=16m "
                        "-machine memory-backend=ram", object,
                        backends[c->kind]);

    assert_no_start(args, "ram-reset-hugefile 'rr0'",
                    c->kind == MEM_FILE ? "use share=on"
                                        : "use memory-backend-file");
}

static bool can_start(const char *strategy, MemKind kind)
{
    return g_strcmp0(strategy, "hugefile") || kind == MEM_HUGETLB_FILE;
}

/* ./test takes each strategy and each kind of memory, --all each pair */
static bool has_random_sequence(unsigned strategy, MemKind kind)
{
    return rounds(1, 0) || (strategy + kind) % 3 == 0;
}

/* Also each strategy and each kind, but other pairs */
static bool has_round_trip(unsigned strategy, MemKind kind)
{
    return rounds(1, 0) || (strategy + kind) % 3 == 1;
}

void add_roundtrip_tests(void)
{
    static const char *const strategies[] = {
        NULL, "memset", "madvise", "remap", "hugefile", "auto", "auto-split",
    };
    static Case cases[G_N_ELEMENTS(strategies)][MEM__MAX];

    for (unsigned s = 0; s < G_N_ELEMENTS(strategies); s++) {
        for (unsigned k = 0; k < MEM__MAX; k++) {
            cases[s][k] = (Case) { strategies[s], k };
            if (!can_start(strategies[s], k)) {
                add("is-refused", &cases[s][k], test_hugefile_is_refused);
                continue;
            }
            if (has_round_trip(s, k) || k == MEM_HUGETLB_FILE) {
                add("round-trip", &cases[s][k], test_round_trip);
            }
            if (strategies[s] && has_random_sequence(s, k)) {
                add("random-sequence", &cases[s][k], test_random_sequence);
            }
        }
        if (can_start(strategies[s], MEM_FILE)) {
            add("private-file-is-not-changed", &cases[s][MEM_FILE],
                test_private_file_is_not_changed);
        }
    }
}
