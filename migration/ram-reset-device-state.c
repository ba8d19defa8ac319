/*
 * The state of all devices, as a VM state has it
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qapi/qapi-builtin-types.h"
#include "qemu/bswap.h"
#include "qemu/units.h"
#include "block/block.h"
#include "io/channel-buffer.h"
#include "qobject/json-writer.h"
#include "system/ram-reset-compat.h"
#include "migration.h"
#include "qemu-file.h"
#include "savevm.h"
#include "migration/ram-reset-device-state.h"

/*
 * How much of the VM state is read to find its end, at first and at most: what
 * an image says of its size is not believed.  What is behind it reads as zeroes
 */
#define FIRST   (256 * KiB)
#define MOST    (256 * MiB)

static void section_clear(void *opaque)
{
    g_free(((DeviceSection *)opaque)->name);
}

void saved_devices_clear(SavedDevices *d)
{
    g_free(d->data);
    g_clear_pointer(&d->descs, g_ptr_array_unref);
    g_clear_pointer(&d->sections, g_array_unref);
}

/* What may come between RAM and devices; false if @at is past the end then */
static bool skip_other(const SavedDevices *d, size_t *at)
{
    while (d->len - *at >= 5) {
        const uint8_t *p = d->data + *at;

        if (*p == QEMU_VM_SECTION_FOOTER) {
            *at += 5;
        } else if (*p == QEMU_VM_COMMAND) {
            *at += 5 + MIN(lduw_be_p(p + 3), d->len - *at - 5);
        } else {
            return true;
        }
    }
    return *at < d->len;
}

/* Of a section that is described later are in the VM state, earlier are not */
static const VMDesc *find_desc(const SavedDevices *d, const DeviceSection *s,
                               unsigned *next)
{
    while (*next < d->descs->len) {
        const VMDesc *desc = g_ptr_array_index(d->descs, (*next)++);

        if (!g_strcmp0(desc->name, s->name) &&
            (uint32_t)desc->instance == s->instance) {
            return desc;
        }
    }
    return NULL;
}

/* Of one section, at @at.  @next: the description that follows the last one */
static bool read_section(SavedDevices *d, size_t *at, unsigned *next,
                         Error **errp)
{
    const uint8_t *p = d->data + *at, *end = d->data + d->len;
    size_t footer = migrate_get_current()->send_section_footer ? 5 : 0;
    uint8_t mark[5] = { QEMU_VM_SECTION_FOOTER };
    DeviceSection s = {};
    int64_t len;

    if (*p != QEMU_VM_SECTION_FULL || end - p < 6 || end - p < 14 + p[5]) {
        error_setg(errp, "%s has a section of type %u where one of a device "
                   "should be", d->what, *p);
        return false;
    }
    memcpy(mark + 1, p + 1, 4);
    s.name = g_strndup((const char *)p + 6, p[5]);
    p += 6 + p[5];
    s.instance = ldl_be_p(p);
    s.version = ldl_be_p(p + 4);
    p += 8;
    s.desc = find_desc(d, &s, next);
    len = s.desc ? vmdesc_size(s.desc) : -1;
    if (len < 0 || len > end - p || footer > end - p - len ||
        memcmp(p + len, mark, footer)) {
        error_setg(errp, "%s has a section '%s', instance %" PRIu32 ", which "
                   "is not as its description says", d->what, s.name,
                   s.instance);
        g_free(s.name);
        return false;
    }
    s.data = p;
    s.len = len;
    *at = p + len + footer - d->data;
    g_array_append_val(d->sections, s);
    return true;
}

static bool read_sections(SavedDevices *d, const char *text, size_t len,
                          Error **errp)
{
    unsigned next = 0;
    size_t at = 0;

    d->sections = g_array_new(false, false, sizeof(DeviceSection));
    g_array_set_clear_func(d->sections, section_clear);
    d->descs = vmdesc_parse(text, len);
    if (!d->descs) {
        error_setg(errp, "the description of %s cannot be read", d->what);
        return false;
    }
    while (skip_other(d, &at) && d->data[at] != QEMU_VM_EOF) {
        if (!read_section(d, &at, &next, errp)) {
            return false;
        }
    }
    return true;
}

bool saved_devices_read(SavedDevices *d, BlockDriverState *bs, int64_t from,
                        Error **errp)
{
    if (from <= 0) {
        error_setg(errp, "in the snapshot, RAM lies between other things");
        return false;
    }
    d->what = "the snapshot";
    for (d->len = FIRST; should_send_vmdesc() && d->len <= MOST; d->len *= 2) {
        const char *text;
        size_t len;
        int ret;

        g_free(d->data);
        /* With a 0 after numbers, wherever the text ends */
        d->data = g_malloc0(d->len + 1);
        ret = bdrv_load_vmstate(bs, d->data, from, d->len);
        if (ret < 0) {
            error_setg_errno(errp, -ret, "the VM state cannot be read");
            return false;
        }
        text = vmdesc_find_first(d->data, d->len, &len);
        if (text) {
            return read_sections(d, text, len, errp);
        }
    }
    error_setg(errp, "the snapshot has no description of devices, see "
               "machine property 'suppress-vmdesc'");
    return false;
}

/* Reads what vCPUs have from KVM */
bool saved_devices_save(SavedDevices *d, Error **errp)
{
    MigrationState *ms = migrate_get_current();
    QIOChannelBuffer *buffer = qio_channel_buffer_new(64 * KiB);
    QEMUFile *f = qemu_file_new_output(QIO_CHANNEL(buffer));
    JSONWriter *desc = json_writer_new(false), *before = ms->vmdesc;
    bool ok;

    d->what = "the machine";
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

        d->len = buffer->usage;
        d->data = g_memdup2(buffer->data, d->len);
        ok = read_sections(d, text, strlen(text), errp);
    }
    qemu_fclose(f);
    object_unref(OBJECT(buffer));
    json_writer_free(desc);
    return ok;
}

const DeviceSection *saved_devices_find(const SavedDevices *d,
                                        const DeviceSection *like,
                                        unsigned first)
{
    for (unsigned i = 0; i < d->sections->len; i++) {
        const DeviceSection *s = &g_array_index(d->sections, DeviceSection,
                                          (first + i) % d->sections->len);

        if (s->instance == like->instance && !strcmp(s->name, like->name)) {
            return s;
        }
    }
    return NULL;
}

