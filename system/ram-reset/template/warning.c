/*
 * Limit warnings that somebody could cause again and again
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset/template/warning.h"

bool ram_reset_warning_due(RamResetWarning *w, const char *text, int64_t now)
{
    if (w->text && (now - w->at < RAM_RESET_WARNING_NS ||
                    (!w->over && !strcmp(w->text, text)))) {
        return false;
    }
    g_free(w->text);
    w->text = g_strdup(text);
    w->at = now;
    w->over = false;
    return true;
}

void ram_reset_warning_over(RamResetWarning *w)
{
    w->over = true;
}
