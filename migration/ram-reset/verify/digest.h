/*
 * Verify RAM by a checksum, for snapshots that no image has
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_VERIFY_DIGEST_H
#define MIGRATION_RAM_RESET_VERIFY_DIGEST_H

#include <glib.h>
#include <stdbool.h>
#include "qapi/error.h"

/**
 * ram_reset_digest: the checksum of all migratable RAM, except blocks that
 * migration ignores
 *
 * Returns: a text, freed by the caller
 */
char *ram_reset_digest(void);

/**
 * ram_reset_check_digest: compare RAM with @digest
 *
 * @digest: of ram_reset_digest() at the save; NULL if there was none
 *
 * Returns: false with @errp set if RAM differs, or cannot be compared
 */
bool ram_reset_check_digest(const char *digest, Error **errp);

#endif
