/*
 * RAM reset: what the user has asked for
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_OPTIONS_H
#define RAM_RESET_OPTIONS_H

#include "system/ram-reset-object.h"

/* BQL held, other than for ram_reset_add_options_notifier() */

/* Whether ram_reset_expect_load() has been called */
bool ram_reset_load_is_expected(void);

/* Every RamReset below /objects; free with g_ptr_array_unref() */
GPtrArray *ram_reset_objects(void);

/* Below /objects; valid as long as @rr is */
const char *ram_reset_id(RamReset *rr);

/* How many threads may clear memory for @rr, at least 1 */
unsigned ram_reset_threads(RamReset *rr);

/*
 * The object whose directory templates are in, NULL if none has one: all that
 * have a template-dir= have the same.
 */
RamReset *ram_reset_template_object(void);

/* The property unchanged-devices= */
void ram_reset_add_unchanged_devices(ObjectClass *oc);

/* Warn if @rr has a limit for something that it has not switched on */
void ram_reset_warn_of_idle_limits(RamReset *rr);

/*
 * What the most modest object grants: the smallest of what @limit gives for
 * each of them.  0 stands for no limit, or for an object that does not matter.
 */
uint64_t ram_reset_smallest_limit(uint64_t (*limit)(const RamReset *rr));

/* The class of @type, one of TYPE_RAM_RESET_* */
RamResetClass *ram_reset_class(const char *type);

/* "madvise" for ram-reset-madvise, a static string */
const char *ram_reset_strategy_name(RamResetClass *rrc);

/*
 * Have @n called whenever objects come or go, or want another rewind= or
 * rewind-limit=.  Its data is the RamReset that has come or changed; NULL if
 * one goes, and then objects must not be looked at, QEMU may be at its end.  To
 * be called while there is one thread, by type_init().
 */
void ram_reset_add_options_notifier(Notifier *n);

/*
 * To be called when that is so.  @more: how many more objects than before have
 * rewind=on, which may be -1
 */
void ram_reset_options_changed(RamReset *rr, int more);

#endif
