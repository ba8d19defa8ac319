/*
 * Templates: reasons why one cannot be made or used
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_TEMPLATE_REFUSAL_H
#define RAM_RESET_TEMPLATE_REFUSAL_H

#include "system/ram-reset-load.h"
#include "system/ram-reset/template/file.h"

/* Whether a template has a block for @rb */
bool template_has_block(RAMBlock *rb);

/* Whether @f matches the current layout of RAM */
bool template_fits(const TemplateFile *f, Error **errp);

/* Whether this QEMU can use templates at all */
bool template_host_is_able(Error **errp);

/* Whether a template has the snapshot's content, and can restore RAM */
bool template_ram_is_able(Error **errp);

#endif
