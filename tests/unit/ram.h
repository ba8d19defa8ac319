/*
 * Memory of each kind that guest RAM may be, for unit tests
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_TEST_RAM_H
#define RAM_RESET_TEST_RAM_H

#include "system/ram-reset/prim/prim.h"

#define HUGE_SIZE ((size_t)2 * 1024 * 1024)
/* For memfd_create() and mmap(): the kernel's own size may be another */
#define HUGE_FLAG (21 << MAP_HUGE_SHIFT)
#define AROUND    (8 * HUGE_SIZE)

typedef struct Kind {
    const char *name;
    bool shared, memfd, huge;
    unsigned offset;                /* in pages */
} Kind;

#define NR_KINDS 7
extern const Kind kinds[NR_KINDS];

/* Within addresses that are set aside, as QEMU does it */
typedef struct Ram {
    PrimMap map;
    uint64_t calls;
    uint8_t *around;
} Ram;

/* The number that the file @name begins with, 0 if it cannot be read */
uint64_t number_in(const char *name);

/* Hugepages that nobody has, nor has reserved */
uint64_t hugepages_to_spare(void);

/* Whether so many are; the test is skipped if not */
bool may_use_hugepages(unsigned pages);

/* The same, and whether @folder on hugetlbfs, or NULL, can have them */
bool may_use_hugetlbfs(const char *folder, unsigned pages);

/*
 * A hugetlbfs of 2 MiB pages, mounted below @dir in a mount namespace of ours,
 * so that it goes away with us.  Its path, to be freed; NULL if we may not.
 */
char *mount_hugetlbfs(const char *dir);
void unmount_hugetlbfs(const char *path);

/* False, and the test is skipped, if there are no hugepages for @kind */
bool possible(const Kind *kind);

/* @name, @flags: of the memfd */
Ram *ram_new(const Kind *kind, const char *name, unsigned flags);
void ram_free(Ram *ram);

uint64_t ram_pages(const Ram *ram);

/* Whether each byte is @value, of all or of one page */
bool all_are(const Ram *ram, uint8_t value);
bool ram_page_is(const Ram *ram, uint64_t page, uint8_t value);

#endif
