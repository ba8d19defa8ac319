/*
 * Fields of devices that a load does not restore, or that a save changes
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "io/channel-buffer.h"
#include "hw/rtc/mc146818rtc_regs.h"
#include "qom/object.h"
#include "system/kvm.h"
#include "system/ram-reset-compat.h"
#include "migration/vmstate.h"
#include "migration/qemu-file.h"
#include "hw/acpi/acpi_dev_interface.h"
#include "migration/ram-reset/verify/exceptions.h"

/*
 * The bytes @first to @last of a field may differ in @bits, or in all bits if
 * that is 0.  If @field is NULL, the subsection may be missing.
 */
typedef struct Exception {
    const char *vmsd, *field;
    uint64_t first, last;
    uint8_t bits;
    bool in_kernel;             /* only with interrupt controllers in KVM */
} Exception;

static const Exception exceptions[] = {
    /* A save reads it from KVM, where it does not stop */
    { "kvmclock", "clock", 0, 7 },

    /* The time is by default the host's; the alarm, in between, is compared */
    { "mc146818rtc", "cmos_data", RTC_SECONDS, RTC_SECONDS },
    { "mc146818rtc", "cmos_data", RTC_MINUTES, RTC_MINUTES },
    { "mc146818rtc", "cmos_data", RTC_HOURS, RTC_HOURS },
    { "mc146818rtc", "cmos_data", RTC_DAY_OF_WEEK, RTC_YEAR },
    { "mc146818rtc", "cmos_data", RTC_CENTURY, RTC_CENTURY },

    /* The time of an Arm machine */
    { "pl031", "tick_offset_vmstate", 0, 3 },

    /* A load marks the display for drawing */
    { "pl110", "invalidate", 0, 3 },

    /* These report the load to the guest */
    { "snapctl", "command", 0, 3 },
    { "snapctl", "status", 0, 3 },
    { "snapctl", "error", 0, 3 },
    { "snapctl", "generation", 0, 7 },
    { "snapctl", "load_ns", 0, 7 },
    { "snapctl", "random", 0, 0 },
    { "snapctl", "irq_due", 0, 0 },

    /* A TPM has a clock; the format of its state is its own */
    { "tpm-emulator", "state_blobs.volatil.buffer", 0, UINT64_MAX },

    /* A load computes these from registers; after a reset they are stale */
    { "e1000e", "core.rx_desc_len", 0, 0 },
    { "e1000e", "core.rxbuf_sizes", 0, 3 },
    { "e1000e", "core.rx_desc_buf_size", 0, 3 },

    /* The last request; it is loaded only if QEMU must retry it */
    { "ide bmdma", "migration_retry_unit", 0, 0 },
    { "ide bmdma", "migration_retry_sector_num", 0, 7 },
    { "ide bmdma", "migration_retry_nsector", 0, 3 },

    /*
     * A new VM generation ID raises an ACPI event.  Its interrupt, mostly 9,
     * may be pending in a CPU (CPU_INTERRUPT_POLL).
     */
    { "cpu_common", "interrupt_request", 3, 3, 0x10 },
    { "gpe", "sts", 0, 1, ACPI_VMGENID_CHANGE_STATUS },
    { "ich9_pm", "acpi_regs.gpe.sts", 0, 1, ACPI_VMGENID_CHANGE_STATUS },

    /* Counts the drawings for a client */
    { "qxl", "ssd.unique", 0, 3 },

    /* The PIT in KVM runs as soon as it is loaded, and raises interrupt 0 */
    { "i8259", "irr", 0, 0, 1, true },

    /* So do APIC timers in KVM: their interrupts, and an expired deadline */
    { "ioapic", "irr", 0, 3, 0, true },
    { "apic", "irr", 0, 3, 0, true },
    { "cpu/msr_tscdeadline", NULL, 0, 0, 0, true },

    /* The time when the APIC was read from KVM; it is not written to KVM */
    { "apic", "initial_count_load_time", 0, 7, 0, true },
    { "apic", "next_time", 0, 7, 0, true },
    { "apic", "timer_expiry", 0, 7, 0, true },
};

bool ram_reset_may_differ(const char *vmsd, const char *field, uint64_t byte,
                          uint8_t bits)
{
    for (unsigned i = 0; i < ARRAY_SIZE(exceptions); i++) {
        const Exception *e = &exceptions[i];

        if (!g_strcmp0(e->vmsd, vmsd) && !g_strcmp0(e->field, field) &&
            byte >= e->first && byte <= e->last &&
            !(bits & ~(e->bits ?: 0xff)) &&
            (!e->in_kernel || kvm_irqchip_in_kernel())) {
            return true;
        }
    }
    return false;
}

/*
 * A save sets the value that QEMU writes to KVM when the guest resumes.
 * Without an undo, the guest's clock would resume at the present time.
 */
static const char kvmclock[] = "kvmclock";

static bool load_section(const DeviceSection *s, DeviceState *dev,
                         Error **errp)
{
    QIOChannelBuffer *buffer = qio_channel_buffer_new(s->len);
    QEMUFile *f;
    bool ok;

    memcpy(buffer->data, s->data, s->len);
    buffer->usage = s->len;
    f = qemu_file_new_input(QIO_CHANNEL(buffer));
    ok = vmstate_load_vmsd(f, DEVICE_GET_CLASS(dev)->vmsd, dev, s->version,
                           errp);
    qemu_fclose(f);
    object_unref(OBJECT(buffer));
    return ok;
}

bool ram_reset_undo_save_changes(const DeviceSections *snapshot,
                                 Error **errp)
{
    const DeviceSection *s = device_sections_find(snapshot, kvmclock, 0, 0);
    Object *obj = object_resolve_path_type("", kvmclock, NULL);

    return !s || !obj || load_section(s, DEVICE(obj), errp);
}
