/*
 * RAM reset: run a function in several threads
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset/block/threads.h"

void ram_reset_in_threads(unsigned nr, void *(*func)(void *opaque),
                          void *opaque)
{
    g_autofree GThread **helpers = g_new0(GThread *, nr);

    for (unsigned i = 1; i < nr; i++) {
        helpers[i] = g_thread_try_new("ram-reset", func, opaque, NULL);
    }
    func(opaque);
    for (unsigned i = 1; i < nr; i++) {
        if (helpers[i]) {
            g_thread_join(helpers[i]);
        }
    }
}
