/*
 * Templates: the template that RAM was loaded from
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_TEMPLATE_STORE_H
#define RAM_RESET_TEMPLATE_STORE_H

#include "system/ram-reset-template.h"
#include "system/ram-reset/template/file.h"

/*
 * The file that was loaded or written last, while RAM differs from it only by
 * the guest's writes; NULL if there is none.  Valid until the next load or
 * save.  BQL held.
 */
const TemplateFile *ram_reset_template(void);

/*
 * RAM has been loaded from @f, which is taken over: the file of a migration, not
 * a template of its own.  @path: the file's name.  BQL held.
 */
void ram_reset_template_set(TemplateFile *f, const char *path);

#endif
