/*
 * In place of QEMU's header, for code that builds without QEMU
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef SHIM_QEMU_CUTILS_H
#define SHIM_QEMU_CUTILS_H

static inline bool buffer_is_zero(const void *buf, size_t len)
{
    const uint8_t *bytes = buf;

    return !len || (!bytes[0] && !memcmp(bytes, bytes + 1, len - 1));
}

#endif
