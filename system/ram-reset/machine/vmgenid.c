/*
 * A new VM generation ID for each snapshot load
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "hw/acpi/vmgenid.h"
#include "hw/nvram/fw_cfg.h"
#include "qemu/bswap.h"
#include "qemu/uuid.h"
#include "system/ram-reset-load.h"
#include "system/ram-reset/machine/vmgenid.h"
#include "system/ram-reset/trace.h"

/* Without ACPI there is no file; modifying it would add one */
static bool has_file(const FWCfgState *s, const char *name)
{
    uint32_t count = be32_to_cpu(s->files->count);

    for (uint32_t i = 0; i < count; i++) {
        if (!strcmp(s->files->f[i].name, name)) {
            return true;
        }
    }
    return false;
}

/*
 * Firmware writes the file to guest RAM after a reset.  A guest that is reset
 * right after the load must not find the ID that it had before the save.
 */
static void modify_file(const QemuUUID *guid_le)
{
    FWCfgState *s = fw_cfg_find();

    if (s && s->files && has_file(s, VMGENID_GUID_FW_CFG_FILE)) {
        uint8_t *data = g_malloc0(VMGENID_FW_CFG_SIZE);

        memcpy(data + VMGENID_GUID_OFFSET, guid_le->data,
               sizeof(guid_le->data));
        g_free(fw_cfg_modify_file(s, VMGENID_GUID_FW_CFG_FILE, data,
                                  VMGENID_FW_CFG_SIZE));
    }
}

void ram_reset_renew_vmgenid(void)
{
    Object *dev = ram_reset_new_vmgenid_wanted() ? find_vmgenid_dev() : NULL;

    if (dev) {
        VmGenIdState *s = VMGENID(dev);
        char text[UUID_STR_LEN];
        QemuUUID guid_le;

        qemu_uuid_generate(&s->guid);
        guid_le = qemu_uuid_bswap(s->guid);
        modify_file(&guid_le);
        qemu_uuid_unparse(&s->guid, text);
        trace_ram_reset_new_vmgenid(text);
    }
}
