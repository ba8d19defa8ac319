/*
 * RAM reset: files with RAM in them
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef SYSTEM_RAM_RESET_TEMPLATE_H
#define SYSTEM_RAM_RESET_TEMPLATE_H

#include "system/ram-reset-load.h"

/*
 * For objects with template-dir=: a template is a file that has RAM as a
 * snapshot has it, for any QEMU to load it without reading the snapshot.
 * Callers say which one by an identity: a text that is the same only if all of
 * RAM is.
 *
 * All functions are called with the BQL held, those that look at RAM with vCPUs
 * stopped and I/O drained.
 */

/**
 * ram_reset_templates_wanted: whether any object has a directory for them
 */
bool ram_reset_templates_wanted(void);

/**
 * ram_reset_template_find: open the template for @identity
 *
 * @note: set to what ram_reset_template_make() was given
 *
 * Returns: false if there is none that fits; query-ram-reset then says why, and
 *     if it is damaged or of other RAM that is warned of
 */
bool ram_reset_template_find(const char *identity, int64_t *note);

/**
 * ram_reset_template_load: make RAM what the template has that was found
 *
 * Takes the place of ram_reset_begin(), and of all of the loading.
 *
 * Returns: false if RAM has to be loaded all the same, which may go on as
 *     after ram_reset_begin()
 */
bool ram_reset_template_load(void);

/**
 * ram_reset_template_make: write a template of what RAM has now
 *
 * @note: to be given to whoever finds it
 * @loaded: RAM was loaded, not saved; then templates that have not been used
 *     lately may go for it, otherwise those that this QEMU has saved
 *
 * Between ram_reset_complete_zeroing() and ram_reset_finish(), or outside of a
 * reset.  A failure is warned of, see warning.h.  The baseline that
 * ram_reset_take_baseline() takes afterwards is this file.
 */
void ram_reset_template_make(const char *identity, int64_t note, bool loaded);

/**
 * ram_reset_has_template: whether RAM is what a template has, loaded or made
 */
bool ram_reset_has_template(void);

/**
 * ram_reset_template_path: of that file, or of one of no use; to be freed
 */
char *ram_reset_template_path(void);

/**
 * ram_reset_template_remove: the template is not what the snapshot has
 *
 * Its file is removed, which is warned of.  @why: a sentence
 */
void ram_reset_template_remove(const char *why);

/**
 * ram_reset_template_retire: the snapshot of that identity goes, or has gone
 *
 * Its template goes with it, unless another process uses that, which may be for
 * a copy of the snapshot.  Who has it mapped goes on with it.
 */
void ram_reset_template_retire(const char *identity);

/**
 * ram_reset_template_close: RAM is not any template's any more
 */
void ram_reset_template_close(void);

/**
 * ram_reset_query_template: NULL unless an object has a directory
 */
RamResetTemplateInfo *ram_reset_query_template(void);

#endif
