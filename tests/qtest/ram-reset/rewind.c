/*
 * RAM reset: cases, object and random writes of tests of rewinds
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "rewind.h"

#define PAGE     (4 * KiB)
#define NR_PAGES (REWIND_SIZE / PAGE)

const RewindCase rewind_cases[NR_REWIND_CASES] = {
    { "memset", MEM_ANON }, { "memset", MEM_MEMFD },
    { "memset", MEM_HUGETLB }, { "memset", MEM_HUGETLB_PRIVATE },
    { "madvise", MEM_ANON }, { "madvise", MEM_THP },
    { "madvise", MEM_MEMFD }, { "madvise", MEM_HUGETLB },
    { "remap", MEM_MEMFD }, { "remap", MEM_ANON },
    { "auto", MEM_ANON }, { "auto", MEM_MEMFD },
    { "hugefile", MEM_HUGETLB_FILE },
};

char *rewind_object(const char *strategy, const char *more)
{
    g_autofree char *props = g_strdup_printf(",rewind=on%s", more);

    return vm_object(strategy, props);
}

static bool is_rom(uint64_t addr)
{
    return addr >= LOW_END && addr < MiB;
}

/* Write a page of random bytes or of zeros, sometimes only a word of it */
static void write_page(Vm *vm, GRand *rand, uint64_t page)
{
    uint64_t addr = page * PAGE;

    switch (g_rand_int_range(rand, 0, 3)) {
    case 0:
        vm_fill(vm, addr, PAGE, 0);
        break;
    case 1:
        vm_random(vm, rand, addr + 4 * g_rand_int_range(rand, 0, PAGE / 4), 4);
        break;
    default:
        vm_random(vm, rand, addr, PAGE);
    }
}

unsigned rewind_scribble(Vm *vm, GRand *rand, unsigned times)
{
    g_autofree bool *written = g_new0(bool, NR_PAGES);
    unsigned n = 0;

    for (unsigned i = 0; i < times; i++) {
        uint64_t page = g_rand_int_range(rand, 0, NR_PAGES);

        if (!is_rom(page * PAGE)) {
            write_page(vm, rand, page);
            n += !written[page];
            written[page] = true;
        }
    }
    return n;
}
