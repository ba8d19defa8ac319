/*
 * RAM reset: the options that the user has set
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_OPTIONS_H
#define RAM_RESET_OPTIONS_H

#include "system/ram-reset-object.h"

/* BQL held, except for ram_reset_add_options_notifier() */

/* Whether ram_reset_expect_load() has been called */
bool ram_reset_load_is_expected(void);

/* All RamReset objects below /objects; free with g_ptr_array_unref() */
GPtrArray *ram_reset_objects(void);

/* The id below /objects; valid as long as @rr is */
const char *ram_reset_id(RamReset *rr);

/* Number of threads that may clear memory for @rr, at least 1 */
unsigned ram_reset_threads(RamReset *rr);

/*
 * An object with a directory for templates, or NULL: all that have a
 * template-dir= have the same.
 */
RamReset *ram_reset_template_object(void);

/* The properties unchanged-devices= and save-kind= */
void ram_reset_add_rewind_options(ObjectClass *oc);

/* Warn if @rr limits a feature that is not switched on */
void ram_reset_warn_of_idle_limits(RamReset *rr);

/*
 * The smallest limit: @limit returns that of each object, 0 for no limit or if
 * the object does not count.
 */
uint64_t ram_reset_smallest_limit(uint64_t (*limit)(const RamReset *rr));

/* The class of @type, one of TYPE_RAM_RESET_* */
RamResetClass *ram_reset_class(const char *type);

/* "madvise" for ram-reset-madvise, a static string */
const char *ram_reset_strategy_name(RamResetClass *rrc);

/*
 * Call @n whenever an object is added or removed, or changes rewind= or
 * rewind-limit=. Its data is the RamReset that was added or changed.  It is
 * NULL if one is removed; then objects must not be accessed, since QEMU may be
 * exiting.  Call this while there is only one thread, by type_init().
 */
void ram_reset_add_options_notifier(Notifier *n);

/*
 * Call the notifiers.  @more: change of the number of objects with rewind=on,
 * which may be -1
 */
void ram_reset_options_changed(RamReset *rr, int more);

#endif
