/*
 * RAM reset: restore RAM by undoing its changes: state of this folder
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_REWIND_INTERNAL_H
#define RAM_RESET_REWIND_INTERNAL_H

#include "system/ram-reset-rewind.h"

/* Protected by the BQL */
typedef struct RewindState {
    bool wanted;                /* by an object with rewind=on */
    GArray *blocks;             /* of BaselineBlock; NULL: no baseline */
    RamResetBlocker *blocker;   /* why RAM cannot be rewound */
    RamResetBlocker *early;     /* the same, before the first one */
    unsigned cpus, turn;
    bool late;                  /* earlier mappings are not noted */
    uint64_t size;              /* bytes in the baseline */
    uint64_t expected;          /* pages that the next save may store */
    uint64_t first_point;       /* that was equal to it; 0: not taken yet */
    bool in_template;           /* that are in a file, and not limited */
} RewindState;

extern RewindState rewind_state;

/* Free the baseline and all points */
void rewind_free_blocks(void);

/*
 * The same, unless a snapshot is in memory only; then the baseline and all
 * points stay, and the position is lost
 */
void rewind_free_unpinned(void);

/*
 * The same, and @why, which is taken over, is the blocker from now on.  If it
 * says nothing against the points, all stay for a pin of a user, too.
 */
void rewind_block(RamResetBlocker *why);

/* The number of vCPUs */
unsigned rewind_count_cpus(void);

#endif
