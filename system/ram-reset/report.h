/*
 * RAM reset: errors and warnings that name an object
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_REPORT_H
#define RAM_RESET_REPORT_H

#include "qapi/error.h"
#include "qemu/error-report.h"
#include "system/ram-reset/options.h"

/* Each text begins with the type and id of @rr: "ram-reset-auto 'rr0': ..." */

/* Like error_setg() */
#define ram_reset_error(rr, errp, fmt, ...) \
    error_setg(errp, "%s '%s': " fmt, object_get_typename(OBJECT(rr)), \
               ram_reset_id(rr), ## __VA_ARGS__)

/* Like warn_report() */
#define ram_reset_warn(rr, fmt, ...) \
    warn_report("%s '%s': " fmt, object_get_typename(OBJECT(rr)), \
                ram_reset_id(rr), ## __VA_ARGS__)

/* Prepend to an error that has been set; for ERRP_GUARD() */
static inline void ram_reset_error_prepend(RamReset *rr, Error **errp)
{
    error_prepend(errp, "%s '%s': ", object_get_typename(OBJECT(rr)),
                  ram_reset_id(rr));
}

#endif
