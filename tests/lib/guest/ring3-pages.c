/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Ring-3 test guest: pages as they are saved, and as a program leaves them that
 * runs between two loads.
 */

#include "ring3.h"

static bool is_zero_page(uint64_t page)
{
    return mix(page) & 1;
}

void write_snapshot(uint64_t addr, uint64_t pages)
{
    for (uint64_t page = addr; page < addr + pages * PAGE_SIZE;
         page += PAGE_SIZE) {
        if (is_zero_page(page)) {
            set(page, PAGE_SIZE, 0);
        } else {
            fill(page, PAGE_SIZE, page);
        }
    }
}

bool snapshot_is_whole(uint64_t addr, uint64_t pages)
{
    for (uint64_t page = addr; page < addr + pages * PAGE_SIZE;
         page += PAGE_SIZE) {
        Result r = is_zero_page(page) ? check_set(page, PAGE_SIZE, 0)
                                      : check_fill(page, PAGE_SIZE, page);

        if (r.bad) {
            put_char('!');
            answer("corrupt", r.first);
            return false;
        }
    }
    return true;
}

/* A page in four is left alone for long, or it would become untracked */
static bool is_due(uint64_t page, uint64_t x)
{
    return x % (mix(page) & 6 ? 2 : 64) == 0;
}

/* In each round other pages, one word somewhere in most, all of the others */
void make_dirty(uint64_t addr, uint64_t pages, uint64_t round)
{
    for (uint64_t page = addr; page < addr + pages * PAGE_SIZE;
         page += PAGE_SIZE) {
        uint64_t x = mix(page ^ mix(round));

        if (!is_due(page, x)) {
            continue;
        }
        switch (x >> 8 & 15) {
        case 0:
            fill(page, PAGE_SIZE, x);
            break;
        case 1:
            set(page, PAGE_SIZE, 0);
            break;
        default:
            *at(page + (x >> 16) % PAGE_SIZE / 8 * 8) = x;
        }
    }
}
