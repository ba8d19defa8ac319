/*
 * Verify RAM by a checksum, for snapshots that no image has
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/cutils.h"
#include "system/ram-reset-compat.h"
#include "system/ram-reset-load.h"
#include "migration/misc.h"
#include "migration/ram-reset/verify/digest.h"

/* Memory that is zero may be absent, and is not shown then */
static bool digest_add(RAMBlock *rb, uint64_t start, const uint8_t *data,
                       uint64_t len, void *opaque)
{
    size_t page = qemu_target_page_size();

    for (uint64_t at = 0; at < len; at += page) {
        uint64_t offset = start + at;

        if (!buffer_is_zero(data + at, page)) {
            g_checksum_update(opaque, (uint8_t *)&offset, sizeof(offset));
            g_checksum_update(opaque, data + at, page);
        }
    }
    return true;
}

char *ram_reset_digest(void)
{
    g_autoptr(GChecksum) sha = g_checksum_new(G_CHECKSUM_SHA256);
    RAMBlock *rb;

    RCU_READ_LOCK_GUARD();
    RAMBLOCK_FOREACH(rb) {
        if (!migrate_ram_is_ignored(rb)) {
            g_checksum_update(sha, (uint8_t *)rb->idstr, sizeof(rb->idstr));
            ram_reset_foreach_content(rb, digest_add, sha);
        }
    }
    return g_strdup(g_checksum_get_string(sha));
}

bool ram_reset_check_digest(const char *digest, Error **errp)
{
    g_autofree char *now = NULL;

    if (!digest) {
        error_setg(errp, "RAM cannot be verified: the snapshot is in memory, "
                   "and was saved with verify=off");
        return false;
    }
    now = ram_reset_digest();
    if (strcmp(now, digest)) {
        error_setg(errp, "RAM differs from that of the snapshot, its SHA-256 "
                   "is %s in place of %s", now, digest);
        return false;
    }
    return true;
}
