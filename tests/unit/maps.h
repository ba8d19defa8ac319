/*
 * A mapping of each kind, with the PrimMap that describes it
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_TEST_MAPS_H
#define RAM_RESET_TEST_MAPS_H

#include "system/ram-reset/prim/prim.h"

#define PAGES 64
#define HUGE_SIZE ((size_t)2 * 1024 * 1024)
/* The default size of hugepages may differ */
#define HUGE_FLAG (21 << MAP_HUGE_SHIFT)

typedef enum {
    ANON, MEMFD, MEMFD_PRIVATE, SHARED_ANON, FILE_PRIVATE, HUGE = 8
} Kind;

/* The size of a page of this machine, in bytes */
size_t base_size(void);

/* Returns NULL and skips the test if the host has no memory of that kind */
PrimMap *map_new(Kind kind);
void map_free(PrimMap *map);

#endif
