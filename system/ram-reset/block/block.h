/*
 * RAM reset: one RAM block
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_BLOCK_BLOCK_H
#define RAM_RESET_BLOCK_BLOCK_H

#include "qemu/units.h"
#include "system/hostmem.h"
#include "system/ram-reset-compat.h"
#include "system/ram-reset-object.h"
#include "system/ram-reset/block/zeromap.h"
#include "system/ram-reset/prim/prim.h"

/**
 * RamResetBlock: a RAM block during one reset
 *
 * @rb: valid under the BQL
 * @map: its used_length when the plan was made
 * @backing: of @map, for prim_data_begin()
 * @ignored: it is no part of the snapshot, and must not be touched
 * @owner: the object that covers the block; NULL if the block is left alone.
 *     @supports and @zero of other classes are called with it, see
 *     RamResetClass
 * @parts: array of RamResetPart, to be made zero in this order; together they
 *     are the block, and may overlap; NULL if nothing is to be made zero
 * @data: array of PrimRange, in rising order: the ranges that were populated
 *     before the load, without those discarded since; NULL if they must be
 *     found when they are needed, since other processes may write to the memory
 * @known: allocated by begin; NULL if nothing can be known
 * @zeroed: all memory that is known zero has been made zero already
 * @cleared: if not NULL, the number of target pages cleared in place is added
 *     to the element for the RAM_RESET_CHUNK that they are in
 * @expected: this block's share of the bytes given to ram_reset_begin(), by its
 *     size
 * @info: shown by query-ram-reset
 */
struct RamResetBlock {
    RAMBlock *rb;
    PrimMap map;
    PrimBacking backing;
    bool ignored;
    RamReset *owner;
    GArray *parts;
    GArray *data;
    ZeroMap *known;
    bool zeroed;
    uint32_t *cleared;
    uint64_t expected;
    RamResetBlockInfo *info;
};

/*
 * A part of a block, in bytes from its start.  @strategy: the class of the
 * methods to use, NULL to clear in place; @done: it has been made zero
 */
typedef struct RamResetPart {
    uint64_t start, len;
    RamResetClass *strategy;
    bool done;
} RamResetPart;

/* The unit for counting touched pages; a piece lies within one unit */
#define RAM_RESET_CHUNK (2 * MiB)

/* The memory backend that @rb belongs to, or NULL */
HostMemoryBackend *ram_reset_block_backend(RAMBlock *rb);

/* The id of that backend below /objects, or NULL */
const char *ram_reset_block_memdev(RAMBlock *rb);

/*
 * The reason why no strategy may touch @rb; NULL if one may.  A static string.
 */
const char *ram_reset_block_refusal(RAMBlock *rb);

/*
 * Whether the guest cannot write to @rb.  Devices may write to it past the
 * dirty log, as a system reset does.
 */
bool ram_reset_block_is_rom(RAMBlock *rb);

PrimMap ram_reset_block_map(RAMBlock *rb);

/*
 * Whether @rb is a private mapping of a file that another block maps shared:
 * data that is loaded into the other block may appear in this one.
 */
bool ram_reset_block_is_aliased(RAMBlock *rb);

/* The reason why the host pages of @blk must stay, or NULL */
const char *ram_reset_block_pin_reason(const RamResetBlock *blk);

/* Whether all of @blk is preallocated */
bool ram_reset_block_is_preallocated(const RamResetBlock *blk);

/* Whether parts of @blk were preallocated when they were plugged */
bool ram_reset_block_has_preallocated_parts(const RamResetBlock *blk);

/*
 * The external user that might continue to use the memory of @blk after other
 * memory has taken its place; NULL if there is none.  A sentence, to be freed.
 */
char *ram_reset_block_external_user(const RamResetBlock *blk);

/*
 * The reason why a process other than QEMU might write to the memory of @blk
 * without a listener; NULL if none can.  A sentence, to be freed.
 */
char *ram_reset_block_external_writer(const RamResetBlock *blk);

/* Whether @memdev is the id of a memory backend in use as guest RAM */
bool ram_reset_check_memdev(const char *memdev, Error **errp);

#endif
