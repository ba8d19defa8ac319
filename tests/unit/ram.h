/*
 * Memory of each kind that guest RAM may be, for unit tests
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_TEST_RAM_H
#define RAM_RESET_TEST_RAM_H

#include "system/ram-reset/prim/prim.h"

#define HUGE_SIZE ((size_t)2 * 1024 * 1024)
/* For memfd_create() and mmap(): the default size may differ */
#define HUGE_FLAG (21 << MAP_HUGE_SHIFT)
#define AROUND    (8 * HUGE_SIZE)

typedef struct Kind {
    const char *name;
    bool shared, memfd, huge;
    unsigned offset;                /* in pages */
} Kind;

#define NR_KINDS 7
extern const Kind kinds[NR_KINDS];

/* Maps within reserved addresses, as QEMU does */
typedef struct Ram {
    PrimMap map;
    uint64_t calls;
    uint8_t *around;
} Ram;

/* The number that the file @name begins with, 0 if it cannot be read */
uint64_t number_in(const char *name);

/* Hugepages that are neither used nor reserved */
uint64_t hugepages_to_spare(void);

/* Whether so many are free; skips the test if not */
bool may_use_hugepages(unsigned pages);

/*
 * The same, and whether @folder on hugetlbfs, which may be NULL, can have them
 */
bool may_use_hugetlbfs(const char *folder, unsigned pages);

/*
 * Mounts a hugetlbfs of 2 MiB pages below @dir in a mount namespace of the
 * test, so it ends with the test.  Returns its path, owned by the caller; NULL
 * if the test may not mount.
 */
char *mount_hugetlbfs(const char *dir);
void unmount_hugetlbfs(const char *path);

/* Returns false and skips the test if there are no hugepages for @kind */
bool possible(const Kind *kind);

/* @name, @flags: of the memfd */
Ram *ram_new(const Kind *kind, const char *name, unsigned flags);
void ram_free(Ram *ram);

uint64_t ram_pages(const Ram *ram);

/* Whether each byte of all pages, or of one page, is @value */
bool all_are(const Ram *ram, uint8_t value);
bool ram_page_is(const Ram *ram, uint64_t page, uint8_t value);

#endif
