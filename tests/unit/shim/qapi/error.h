/*
 * In place of QEMU's header, for code that builds without QEMU
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef SHIM_QAPI_ERROR_H
#define SHIM_QAPI_ERROR_H

#include <glib.h>

typedef struct Error {
    char *text;
} Error;

static inline void error_free(Error *err)
{
    if (err) {
        g_free(err->text);
        g_free(err);
    }
}

G_DEFINE_AUTOPTR_CLEANUP_FUNC(Error, error_free)

static inline const char *error_get_pretty(const Error *err)
{
    return err->text;
}

/* Takes ownership of @text */
static inline void shim_error_set(Error **errp, char *text)
{
    if (errp) {
        g_assert(!*errp);
        *errp = g_new(Error, 1);
        (*errp)->text = text;
    } else {
        g_free(text);
    }
}

#define error_setg(errp, ...) \
    shim_error_set(errp, g_strdup_printf(__VA_ARGS__))

#endif
