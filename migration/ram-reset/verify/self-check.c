/*
 * Self-check: verify that an unchanged device has the state of the snapshot
 *
 * system/ram-reset/devices compares the memory of a device, with a list of its
 * members that was made by reading QEMU.  The self-check compares the state
 * that QEMU saves for the device.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/error-report.h"
#include "qemu/units.h"
#include "io/channel-buffer.h"
#include "migration/vmstate.h"
#include "qobject/json-writer.h"
#include "system/ram-reset-devices.h"
#include "migration/qemu-file.h"
#include "migration/ram-reset/verify/devices.h"
#include "migration/ram-reset/verify/save-devices.h"
#include "migration/ram-reset/verify/self-check.h"
#include "system/ram-reset/trace.h"

/* BQL.  The check of the first device fills @sections. */
static struct {
    SectionBytes bytes;
    DeviceSections sections;
    uint64_t failures;
} check;

void ram_reset_self_check_begin(const uint8_t *data, size_t size)
{
    check.bytes = (SectionBytes) { "the snapshot", data, size, true };
}

void ram_reset_self_check_end(void)
{
    device_sections_clear(&check.sections);
    check.bytes.data = NULL;
}

uint64_t ram_reset_self_check_failures(void)
{
    return check.failures;
}

static const DeviceSection *self_check_find(uint64_t start, Error **errp)
{
    if (!check.sections.list &&
        !device_sections_read(&check.sections, &check.bytes, errp)) {
        return NULL;
    }
    for (unsigned i = 0; i < check.sections.list->len; i++) {
        DeviceSection *s = &g_array_index(check.sections.list, DeviceSection,
                                          i);

        if (s->start == start) {
            return s;
        }
    }
    error_setg(errp, "the snapshot has no section at %" PRIu64, start);
    return NULL;
}

/* Write the current content of @dev, between the head and the footer of @s */
static bool write_section(QEMUFile *f, JSONWriter *desc, DeviceState *dev,
                          const DeviceSection *s, Error **errp)
{
    const uint8_t *head = check.bytes.data + s->start;
    const uint8_t *end = check.bytes.data + s->end;
    bool ok;

    json_writer_start_object(desc, NULL);
    json_writer_start_array(desc, "devices");
    json_writer_start_object(desc, NULL);
    json_writer_str(desc, "name", s->desc->name);
    json_writer_int64(desc, "instance_id", s->instance);
    qemu_put_buffer(f, head, s->data - head);
    ok = vmstate_save_vmsd(f, qdev_get_vmsd(dev), dev, desc, errp);
    qemu_put_buffer(f, s->data + s->len, end - s->data - s->len);
    json_writer_end_object(desc);
    json_writer_end_array(desc);
    json_writer_end_object(desc);
    if (ok && qemu_fflush(f) < 0) {
        error_setg(errp, "section '%s' cannot be saved", s->desc->name);
        ok = false;
    }
    return ok;
}

static bool save_section(DeviceSections *d, DeviceState *dev,
                         const DeviceSection *s, Error **errp)
{
    QIOChannelBuffer *buffer = qio_channel_buffer_new(4 * KiB);
    QEMUFile *f = qemu_file_new_output(QIO_CHANNEL(buffer));
    JSONWriter *desc = json_writer_new(false);
    bool ok = write_section(f, desc, dev, s, errp) &&
              ram_reset_parse_saved(d, buffer, desc, true, errp);

    qemu_fclose(f);
    object_unref(OBJECT(buffer));
    json_writer_free(desc);
    return ok;
}

static bool device_is_unchanged(DeviceState *dev, uint64_t start, Error **errp)
{
    const DeviceSection *s = self_check_find(start, errp);
    DeviceSections now = {};
    bool ok;

    if (!s) {
        return false;
    }
    if (s->version != qdev_get_vmsd(dev)->version_id) {
        error_setg(errp, "section '%s' has version %" PRIu32, s->desc->name,
                   s->version);
        return false;
    }
    ok = save_section(&now, dev, s, errp) &&
         ram_reset_compare_section(s, &g_array_index(now.list,
                                                     DeviceSection, 0), errp);
    device_sections_clear(&now);
    return ok;
}

bool ram_reset_self_check(DeviceState *dev, uint64_t start)
{
    const char *type = object_get_typename(OBJECT(dev));
    Error *err = NULL;
    bool same = device_is_unchanged(dev, start, &err);

    trace_ram_reset_self_check(type, same);
    if (!same) {
        g_autofree char *problem = g_strdup_printf("a self-check has failed: "
                                                   "%s", error_get_pretty(err));

        check.failures++;
        ram_reset_devices_distrust(dev, problem);
        warn_report("RAM reset: devices of class %s are loaded with each load "
                    "from now on: %s", type, problem);
        error_free(err);
    }
    return same;
}
