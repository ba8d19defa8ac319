/*
 * ram-reset-hugefile: declarations shared by its files
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_HUGEFILE_HUGEFILE_H
#define RAM_RESET_HUGEFILE_HUGEFILE_H

#include "qapi/qapi-types-ram-reset-object.h"
#include "system/runstate.h"
#include "system/hostmem.h"
#include "system/ram-reset-compat.h"
#include "system/ram-reset-object.h"
#include "system/ram-reset/hugefile/record.h"

OBJECT_DECLARE_SIMPLE_TYPE(RamResetHugefile, RAM_RESET_HUGEFILE)

/**
 * RamResetHugefile: one file
 *
 * @state: path of the file with the record; NULL for the default
 * @state_fd: that file, locked; -1 if no file has been claimed
 * @id: the object's, which has none any more when it is finalized
 * @path: of the RAM file
 * @claim_fd: the RAM file, locked, until QEMU has mapped it; then -1
 * @notice: until then reports whether another process closes the file
 * @created: @claim_fd is a file that did not exist before
 * @rb: the RAM block, from the time it is mapped until it is removed
 * @reclaiming: a former RAM block may still have its file open
 * @record: content of the record while the file is in use
 * @watched: another process's mapping of the file would be noticed
 * @old: hugepages that may hold bytes of an earlier run; NULL if none does.
 *     NULL also while the guest runs.
 * @info: shown by query-ram-reset
 */
struct RamResetHugefile {
    RamReset parent;

    RamResetUnlink unlink;
    char *state;
    bool clear_on_exit;

    int state_fd;
    char *id, *path;
    int claim_fd, notice;
    bool created;
    RAMBlock *rb;
    bool reclaiming;
    HugeRecord record;
    bool watched;
    unsigned long *old;
    RamResetHugefileInfo info;
    RAMBlockNotifier notifier;
    VMChangeStateEntry *vm_state;
};

/* The object that names @backend, or NULL */
RamResetHugefile *hugefile_by_memdev(HostMemoryBackend *backend);

/* Prepend "cannot use '@path' ...: " to an error that has been set */
void hugefile_error_prepend(RamResetHugefile *hf, const char *path,
                            Error **errp);

/*
 * Claim the file that @backend is about to map: sets @hf->claim_fd.  If the
 * file cannot be used, returns false with @errp set, and nothing is claimed.
 */
bool hugefile_claim(RamResetHugefile *hf, HostMemoryBackend *backend,
                    Error **errp);

/* Close and unlock both files, and clear all that is known about them */
void hugefile_drop_claim(RamResetHugefile *hf);

#endif
