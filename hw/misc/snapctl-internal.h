/*
 * snapctl: declarations shared by snapctl.c and snapctl-command.c
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef HW_MISC_SNAPCTL_INTERNAL_H
#define HW_MISC_SNAPCTL_INTERNAL_H

#include "hw/misc/snapctl.h"
#include "hw/pci/pci_device.h"
#include "qapi/qapi-types-snapctl.h"
#include "system/hostmem.h"

OBJECT_DECLARE_SIMPLE_TYPE(SnapctlState, SNAPCTL)

struct SnapctlState {
    PCIDevice parent_obj;

    MemoryRegion regs;
    VMChangeStateEntry *vm_state_handler;
    QEMUBH *bh;

    /* properties */
    SnapctlAllow allow;
    RamResetSaveKind save_kind;
    uint64_t memory_limit;      /* bytes that all slots may have there; 0: any */
    char *slots;
    uint32_t min_interval;
    HostMemoryBackend *region;

    char **tags;
    uint32_t nr_tags;

    /* saved in a snapshot */
    uint32_t slot;
    uint32_t command;           /* pending, or 0 */
    uint32_t status;
    uint32_t error;
    uint64_t generation;
    uint64_t load_ns;
    uint8_t random[SNAPCTL_RANDOM_SIZE];
    bool irq_due;

    /* of the current load; the guest reads the result after it */
    bool loading;
    uint64_t former_generation;
    int64_t stopped_ns;         /* when the guest was stopped for it, or 0 */

    /* not saved in a snapshot; used mostly by snapctl-command.c */
    bool used;
    int64_t used_ns;            /* when the last command ended */
    uint64_t saves, loads, failures, refused;
    SnapctlOutcome *last;
    int64_t logged_ns;          /* time of the last logged failure, or 0 */
    uint64_t unlogged;          /* failures since then */
};

/* All functions are called with the BQL held */

/* defined in snapctl-command.c */

/* The device, or NULL; @ambiguous: whether there are two, may be NULL */
SnapctlState *snapctl_find(bool *ambiguous);

/* These enclose the time in which the device may get commands */
void snapctl_command_init(SnapctlState *s);
void snapctl_command_exit(SnapctlState *s);

/* Whether allow= permits @command, SNAPCTL_COMMAND_SAVE or _LOAD */
bool snapctl_is_allowed(const SnapctlState *s, uint32_t command);

/* The guest has written @command, which is unchecked; no command is pending */
void snapctl_begin(SnapctlState *s, uint32_t command);

/* The guest runs again; continue with a command that has waited for that */
void snapctl_go_on(SnapctlState *s);

/* End the pending command; the guest reads @status and @error */
void snapctl_finish(SnapctlState *s, uint32_t status, uint32_t error);

#endif
