/*
 * RAM reset: the template that RAM is of
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_TEMPLATE_STORE_H
#define RAM_RESET_TEMPLATE_STORE_H

#include "system/ram-reset-template.h"
#include "system/ram-reset/template/file.h"

/*
 * The file that has been loaded, or written, last, as long as RAM has been
 * what it says since, but for what the guest has written; NULL if there is
 * none.  Valid until the next load or save.  BQL held.
 */
const TemplateFile *ram_reset_template(void);

#endif
