/*
 * Which CPUs a snapshot has
 *
 * QEMU finds out that a CPU of the snapshot was unplugged, or not plugged yet,
 * when disks and RAM are the snapshot's already.  The sections of devices can
 * only be read by loading them, but a description of them comes last.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/cutils.h"
#include "qemu/units.h"
#include "block/block.h"
#include "hw/core/cpu.h"
#include "migration.h"
#include "migration/ram-reset-cpus.h"
#include "migration/ram-reset-vmdesc.h"

/* What is read of a VM state to find its description, at first and at most */
#define FIRST   (64 * KiB)
#define MOST    (16 * MiB)

/* With a 0 at its end; NULL if there is none */
static char *read_description(BlockDriverState *image, uint64_t size)
{
    /* Not to look for what this machine does not write */
    if (!should_send_vmdesc()) {
        return NULL;
    }
    for (uint64_t len = MIN(size, FIRST); ; len = MIN(size, 2 * len)) {
        g_autofree uint8_t *buf = g_malloc(len + 1);
        const char *text;

        if (size > INT64_MAX ||
            bdrv_load_vmstate(image, buf, size - len, len) < 0) {
            return NULL;
        }
        buf[len] = 0;
        text = vmdesc_find(buf, len);
        if (text) {
            return g_strdup(text);
        }
        if (len == size || len >= MOST || buf[len - 1] != '}') {
            return NULL;
        }
    }
}

GArray *ram_reset_cpus_read(BlockDriverState *image, uint64_t size)
{
    static const char before[] = "\"name\": \"cpu_common\", \"instance_id\": ";
    g_autofree char *text = read_description(image, size);
    GArray *cpus = g_array_new(false, false, sizeof(unsigned));

    for (const char *p = text; p && (p = strstr(p, before)); ) {
        unsigned index;

        p += strlen(before);
        if (!qemu_strtoui(p, &p, 10, &index)) {
            g_array_append_val(cpus, index);
        }
    }
    return cpus;
}

bool ram_reset_cpus_are_here(const GArray *cpus, Error **errp)
{
    ERRP_GUARD();

    for (unsigned i = 0; i < cpus->len; i++) {
        unsigned index = g_array_index(cpus, unsigned, i);

        if (index > INT_MAX || !qemu_get_cpu(index)) {
            error_setg(errp, "it has CPU %u, which this machine has not",
                       index);
            error_append_hint(errp, "Plug it, or start QEMU with the CPUs that "
                              "the snapshot was taken with.\n");
            return false;
        }
    }
    return true;
}
