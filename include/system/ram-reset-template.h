/*
 * RAM reset: files with the RAM of a snapshot
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef SYSTEM_RAM_RESET_TEMPLATE_H
#define SYSTEM_RAM_RESET_TEMPLATE_H

#include "system/ram-reset-load.h"

/*
 * For objects with template-dir=. A template is a file with the RAM of a
 * snapshot, which any QEMU can load without reading the snapshot.  A template
 * is named by its identity: a text that is equal only if all of RAM is equal.
 *
 * All functions are called with the BQL held.  Functions that read or write RAM
 * are called with vCPUs stopped and I/O drained.
 */

/**
 * ram_reset_templates_wanted: whether any object has a directory for templates
 */
bool ram_reset_templates_wanted(void);

/**
 * ram_reset_template_find: open the template for @identity
 *
 * @note: set to the number given to ram_reset_template_make()
 *
 * Returns: false if none fits. query-ram-reset then reports the reason.  A
 * damaged template, or one of other RAM, is warned of
 */
bool ram_reset_template_find(const char *identity, int64_t *note);

/**
 * ram_reset_template_load: fill RAM from the template that was found
 *
 * This replaces ram_reset_begin(), and all loading of RAM.
 *
 * Returns: false if RAM must be loaded all the same, which may continue as
 * after ram_reset_begin()
 */
bool ram_reset_template_load(void);

/**
 * ram_reset_template_make: write a template of the current RAM
 *
 * @note: a number that ram_reset_template_find() returns
 * @loaded: RAM was loaded, not saved; then templates that have not been used
 *     lately may be removed for it, otherwise those that this QEMU has saved
 *
 * Call this between ram_reset_complete_zeroing() and ram_reset_finish(), or
 * outside of a reset.  A failure is warned of, see warning.h.  A later
 * ram_reset_take_point() uses this file as the baseline.
 */
void ram_reset_template_make(const char *identity, int64_t note, bool loaded);

/**
 * ram_reset_has_template: whether RAM has been loaded from, or written to, a
 * template
 */
bool ram_reset_has_template(void);

/**
 * ram_reset_template_path: the path of that file, or of an unusable one; to be
 * freed
 */
char *ram_reset_template_path(void);

/**
 * ram_reset_template_remove: the template differs from the snapshot
 *
 * Its file is removed, which is warned of.  @why: a sentence
 */
void ram_reset_template_remove(const char *why);

/**
 * ram_reset_template_retire: the snapshot of @identity is being deleted, or has
 * been
 *
 * This removes its template, unless another process uses it, perhaps for a copy
 * of the snapshot.  A process that has it mapped can continue to use it.
 */
void ram_reset_template_retire(const char *identity);

/*
 * The file of a migration that comes in, in the form of mapped-ram: blocks lie
 * in it as in memory, so RAM can be mapped from it as from a template.
 */

/**
 * ram_reset_migration_file_open: prepare to map RAM
 *
 * @fd, @own_fd: two descriptions of the file, opened for reading only; taken
 *     over
 *
 * Returns: false with @errp set to the reason if RAM must be read: the file
 *     cannot be trusted, or QEMU would not learn of a change to it
 */
bool ram_reset_migration_file_open(int fd, int own_fd, Error **errp);

/**
 * ram_reset_migration_file_map: make @rb a private mapping of the file
 *
 * Nothing is read.  Pages that are not stored become zero, whatever the file
 * has in their places.
 *
 * @offset: of the block's first page in the file, in bytes
 * @stored: a bit for each target page of the block that the file has
 * @pages: set to their number
 *
 * Returns: false with @errp set to the reason if the block is not mapped, and
 *     must be read: its memory is what it was before, or zero
 */
bool ram_reset_migration_file_map(RAMBlock *rb, uint64_t offset,
                                  const unsigned long *stored,
                                  uint64_t *pages, Error **errp);

/**
 * ram_reset_migration_file_end: all of RAM has been mapped or read
 *
 * A later ram_reset_take_point() uses the file as the baseline.  @path: the
 * file's name, for reports
 *
 * Returns: false with @errp set if verify=on has found that RAM differs
 */
bool ram_reset_migration_file_end(const char *path, Error **errp);

/**
 * ram_reset_migration_file_give_back: a migration is about to open @path for
 * writing
 *
 * If RAM is mapped from that file, it becomes memory of its own.
 */
void ram_reset_migration_file_give_back(const char *path);

/** ram_reset_migration_file_close: the migration has failed */
void ram_reset_migration_file_close(void);

/** ram_reset_template_close: RAM is not equal to any template any more */
void ram_reset_template_close(void);

/**
 * ram_reset_query_template: NULL unless an object has a directory
 */
RamResetTemplateInfo *ram_reset_query_template(void);

#endif
