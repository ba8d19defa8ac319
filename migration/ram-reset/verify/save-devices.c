/*
 * Save the state of all devices of this machine to memory
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "io/channel-buffer.h"
#include "qobject/json-writer.h"
#include "system/ram-reset-compat.h"
#include "migration/migration.h"
#include "migration/qemu-file.h"
#include "migration/ram-reset/verify/save-devices.h"
#include "migration/ram-reset/vmstate/format.h"

bool ram_reset_parse_saved(DeviceSections *s, const QIOChannelBuffer *buffer,
                           JSONWriter *desc, bool footers, Error **errp)
{
    const char *text = json_writer_get(desc);
    SectionBytes bytes = {
        .what = "the machine",
        .len = buffer->usage,
        .footers = footers,
    };

    bytes.data = s->data = g_memdup2(buffer->data, bytes.len);
    return device_sections_parse(s, &bytes, text, strlen(text), errp);
}

bool ram_reset_save_devices(DeviceSections *s, Error **errp)
{
    MigrationState *ms = migrate_get_current();
    QIOChannelBuffer *buffer = qio_channel_buffer_new(64 * KiB);
    QEMUFile *f = qemu_file_new_output(QIO_CHANNEL(buffer));
    JSONWriter *desc = json_writer_new(false), *before = ms->vmdesc;
    bool ok;

    json_writer_start_object(desc, NULL);
    json_writer_start_array(desc, "devices");
    ms->vmdesc = desc;
    ok = qemu_savevm_state_non_iterable(f, errp);
    ms->vmdesc = before;
    json_writer_end_array(desc);
    json_writer_end_object(desc);
    qemu_fflush(f);
    ok = ok && ram_reset_parse_saved(s, buffer, desc, ms->send_section_footer,
                                     errp);
    qemu_fclose(f);
    object_unref(OBJECT(buffer));
    json_writer_free(desc);
    return ok;
}
