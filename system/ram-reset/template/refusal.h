/*
 * Templates: reasons why one cannot be made or used
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_TEMPLATE_REFUSAL_H
#define RAM_RESET_TEMPLATE_REFUSAL_H

#include "system/ram-reset-load.h"
#include "system/ram-reset/template/file.h"

/* Reasons are to be freed, or NULL */

/* Whether a template has a block for @rb */
bool template_has_block(RAMBlock *rb);

/* Why @f is not of RAM as it is laid out now */
char *template_misfit(const TemplateFile *f);

/* The reason why this QEMU can use no template; a static string, or NULL */
const char *template_host_refusal(void);

/* Why a template might not be what a snapshot has, or not make RAM that */
char *template_refusal(void);

#endif
