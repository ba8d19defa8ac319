/*
 * RAM reset: what is said in the name of an object
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_REPORT_H
#define RAM_RESET_REPORT_H

#include "system/ram-reset/options.h"

/* All begin with the type and id of @rr: "ram-reset-auto 'rr0': ..." */

/* As error_setg() */
void ram_reset_error(RamReset *rr, Error **errp, const char *fmt, ...)
    G_GNUC_PRINTF(3, 4);

/* To an error that has been set; for ERRP_GUARD() */
void ram_reset_error_prepend(RamReset *rr, Error **errp);

/* As warn_report() */
void ram_reset_warn(RamReset *rr, const char *fmt, ...) G_GNUC_PRINTF(2, 3);

#endif
