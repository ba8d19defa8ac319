/*
 * RAM reset: run a function in several threads
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_BLOCK_THREADS_H
#define RAM_RESET_BLOCK_THREADS_H

/* Call @func with @opaque in @nr threads at once, one of which is this one */
void ram_reset_in_threads(unsigned nr, void *(*func)(void *opaque),
                          void *opaque);

#endif
