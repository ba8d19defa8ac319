/*
 * RAM reset: rewinds in any sequence of loads, saves and writes
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qobject/qdict.h"
#include "rewind.h"

/* Compare any sequence with a model of RAM */
static void test_random_sequence(const void *opaque)
{
    const RewindCase *c = opaque;
    g_autofree char *object = rewind_object(c->strategy, ",verify=on");
    uint8_t *models[3] = { NULL };
    guint32 seed = g_test_rand_int();
    unsigned rewound = 0, loads = 0;
    GRand *rand;
    Vm *vm;

    if (mem_skip(c->kind)) {
        return;
    }
    g_test_message("seed %u", seed);
    rand = g_rand_new_with_seed(seed);
    vm = vm_start(c->kind, REWIND_SIZE, object);
    /* A short sequence continues until it has loaded a snapshot */
    for (unsigned i = 0, n = rounds(150, 20); i < n || loads < 5; i++) {
        unsigned slot = g_rand_int_range(rand, 0, G_N_ELEMENTS(models));
        g_autofree char *tag = g_strdup_printf("slot%u", slot);
        g_autoptr(QDict) info = NULL;

        switch (g_rand_int_range(rand, 0, 8)) {
        case 0:
            vm_save(vm, tag);
            g_free(models[slot]);
            models[slot] = vm_content(vm);
            break;
        case 1:
            if (models[slot]) {
                vm_hmp_ok(vm, "delvm %s", tag);
                g_clear_pointer(&models[slot], g_free);
            }
            break;
        case 2:
            qtest_system_reset(vm->qts);
            break;
        case 3:
        case 4:
        case 5:
            rewind_scribble(vm, rand, 1 << g_rand_int_range(rand, 0, 10));
            break;
        default:
            if (models[slot]) {
                loads++;
                vm_load(vm, tag);
                vm_assert_content(vm, models[slot]);
                info = vm_query(vm);
                rewound += qdict_get_bool(qdict_get_qdict(info, "last-load"),
                                          "rewound");
            }
        }
    }
    g_test_message("%u of %u loads were rewound", rewound, loads);
    for (unsigned i = 0; i < G_N_ELEMENTS(models); i++) {
        g_free(models[i]);
    }
    vm_end(vm);
    g_rand_free(rand);
}

void add_rewind_random_tests(void)
{
    /* ./test has each strategy */
    for (unsigned i = 0; i < NR_REWIND_CASES; i += rounds(1, 2)) {
        g_autofree char *path = g_strdup_printf(
            "ram-reset/rewind/random-sequence/%s/%s", rewind_cases[i].strategy,
            mem_name(rewind_cases[i].kind));

        qtest_add_data_func(path, &rewind_cases[i], test_random_sequence);
    }
}
