/*
 * The state of all devices, as a VM state has it
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/units.h"
#include "block/block.h"
#include "io/channel-buffer.h"
#include "qobject/json-writer.h"
#include "system/ram-reset-compat.h"
#include "migration.h"
#include "qemu-file.h"
#include "savevm.h"
#include "migration/ram-reset-device-state.h"

/* The most that is read: an image may say of its size what it likes */
#define MOST    (256 * MiB)

void saved_devices_clear(SavedDevices *d)
{
    device_sections_clear(&d->sections);
    g_clear_pointer(&d->data, g_free);
}

/* Whether a VM state of @size bytes ends as a description does */
static bool is_described(BlockDriverState *bs, uint64_t size)
{
    uint8_t last;

    return should_send_vmdesc() && size && size <= INT64_MAX &&
           bdrv_load_vmstate(bs, &last, size - 1, 1) >= 0 && last == '}';
}

bool saved_devices_read(SavedDevices *d, BlockDriverState *bs,
                        const QEMUSnapshotInfo *sn, int64_t from,
                        Error **errp)
{
    SectionBytes bytes = {
        .what = "the snapshot",
        .footers = migrate_get_current()->send_section_footer,
    };
    int ret;

    if (from <= 0) {
        error_setg(errp, "in the snapshot, RAM lies between other things");
        return false;
    }
    if (is_described(bs, sn->vm_state_size) && from < sn->vm_state_size) {
        bytes.len = sn->vm_state_size - from;
    }
    d->data = bytes.len <= MOST ? g_try_malloc(bytes.len) : NULL;
    if (!d->data && bytes.len) {
        error_setg(errp, "the snapshot has %zu bytes behind RAM, and there is "
                   "room for %" PRIu64, bytes.len, (uint64_t)MOST);
        return false;
    }
    ret = bytes.len ? bdrv_load_vmstate(bs, d->data, from, bytes.len) : 0;
    if (ret < 0) {
        error_setg_errno(errp, -ret, "the VM state cannot be read");
        return false;
    }
    bytes.data = d->data;
    return device_sections_read(&d->sections, &bytes, errp);
}

/* Reads what vCPUs have from KVM */
bool saved_devices_save(SavedDevices *d, Error **errp)
{
    MigrationState *ms = migrate_get_current();
    QIOChannelBuffer *buffer = qio_channel_buffer_new(64 * KiB);
    QEMUFile *f = qemu_file_new_output(QIO_CHANNEL(buffer));
    JSONWriter *desc = json_writer_new(false), *before = ms->vmdesc;
    SectionBytes bytes = {
        .what = "the machine",
        .footers = ms->send_section_footer,
    };
    bool ok;

    json_writer_start_object(desc, NULL);
    json_writer_start_array(desc, "devices");
    ms->vmdesc = desc;
    ok = qemu_savevm_state_non_iterable(f, errp);
    ms->vmdesc = before;
    json_writer_end_array(desc);
    json_writer_end_object(desc);
    qemu_fflush(f);
    if (ok) {
        const char *text = json_writer_get(desc);

        bytes.len = buffer->usage;
        bytes.data = d->data = g_memdup2(buffer->data, bytes.len);
        ok = device_sections_parse(&d->sections, &bytes, text, strlen(text),
                                   errp);
    }
    qemu_fclose(f);
    object_unref(OBJECT(buffer));
    json_writer_free(desc);
    return ok;
}

const DeviceSection *saved_devices_find(const SavedDevices *d,
                                        const char *name, uint32_t instance,
                                        unsigned first)
{
    const GArray *list = d->sections.list;

    for (unsigned i = 0; i < list->len; i++) {
        const DeviceSection *s = &g_array_index(list, DeviceSection,
                                                (first + i) % list->len);

        if (s->instance == instance && !strcmp(s->desc->name, name)) {
            return s;
        }
    }
    return NULL;
}
