/*
 * Tests to be skipped if no Linux of the machine runs them that they are built
 * for: qemu-user runs them then, and hands some system calls to the host's
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_TEST_EMULATOR_H
#define RAM_RESET_TEST_EMULATOR_H

/* Skip the running test under qemu-user, which lacks @lacks */
bool emulator_lacks(const char *lacks);

#endif
