/*
 * When two snapshots are the same
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_IDENTITY_H
#define MIGRATION_RAM_RESET_IDENTITY_H

#include "block/snapshot.h"
#include "migration/ram-reset-summary.h"

/*
 * Whether two snapshots are the same is asked for two purposes, and the answers
 * differ.
 *
 * The key: the same entry in the list of snapshots of the same image, for as
 * long as this QEMU runs.  A snapshot that is saved anew gets another id, or
 * another date, so another key.  It costs nothing, but has a node name, which
 * means nothing to another QEMU.  What is remembered of a snapshot goes by it.
 *
 * The identity: the same RAM, in any copy of the image and for any QEMU.  It
 * has a checksum of samples of the VM state instead of the node name, so takes
 * some reads the first time.  Templates, which outlive QEMU, go by it.  As the
 * RAM of a template may be without shared blocks, the identity says that, too.
 */

/* @bs is where the VM state of @sn is, which need not be the current one */

/**
 * ram_reset_snapshot_key: see above
 *
 * Returns: a text, to be freed
 */
char *ram_reset_snapshot_key(BlockDriverState *bs, const QEMUSnapshotInfo *sn);

/**
 * ram_reset_snapshot_summary: what the VM state of @sn says of itself
 *
 * It is read once for each key.
 *
 * Returns: a borrowed reference, valid until the next call; NULL with @errp
 *     set if it is no VM state
 */
const RamResetSummary *ram_reset_snapshot_summary(BlockDriverState *bs,
                                                  const QEMUSnapshotInfo *sn,
                                                  Error **errp);

/**
 * ram_reset_snapshot_identity: see above
 *
 * @shared: the template has shared RAM, too
 *
 * Only where ram_reset_templates_wanted().
 *
 * Returns: a text, to be freed; NULL if the format of the image does not allow
 *     to look, or it cannot be read
 */
char *ram_reset_snapshot_identity(BlockDriverState *bs,
                                  const QEMUSnapshotInfo *sn, bool shared);

/**
 * ram_reset_template_identity: of the template that a load of @sn uses, and a
 * save or load of it makes, with migration's capabilities as they are
 *
 * Returns: a text, to be freed; NULL if @sn may have no template
 */
char *ram_reset_template_identity(BlockDriverState *bs,
                                  const QEMUSnapshotInfo *sn);

#endif
