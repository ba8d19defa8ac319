/*
 * What of a device's state a load does not bring back, or a save changes
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
 * The @bits, or all, of the bytes @first to @last of a field; without a field,
 * whether there is the subsection
 */
typedef struct Exception {
    const char *vmsd, *field;
    uint64_t first, last;
    uint8_t bits;
    bool in_kernel;             /* only if KVM has the interrupt controllers */
} Exception;

static const Exception exceptions[] = {
    /* Read from KVM when it is saved, where it goes on */
    { "kvmclock", "clock", 0, 7 },

    /* The time, which by default is the host's; not the alarm between it */
    { "mc146818rtc", "cmos_data", RTC_SECONDS, RTC_SECONDS },
    { "mc146818rtc", "cmos_data", RTC_MINUTES, RTC_MINUTES },
    { "mc146818rtc", "cmos_data", RTC_HOURS, RTC_HOURS },
    { "mc146818rtc", "cmos_data", RTC_DAY_OF_WEEK, RTC_YEAR },
    { "mc146818rtc", "cmos_data", RTC_CENTURY, RTC_CENTURY },

    /* The same for Arm */
    { "pl031", "tick_offset_vmstate", 0, 3 },

    /* A display that is to be drawn again */
    { "pl110", "invalidate", 0, 3 },

    /* With them it tells the guest of the load */
    { "snapctl", "command", 0, 3 },
    { "snapctl", "status", 0, 3 },
    { "snapctl", "error", 0, 3 },
    { "snapctl", "generation", 0, 7 },
    { "snapctl", "load_ns", 0, 7 },
    { "snapctl", "random", 0, 0 },
    { "snapctl", "irq_due", 0, 0 },

    /* A TPM has a clock, and says itself what is where */
    { "tpm-emulator", "state_blobs.volatil.buffer", 0, UINT64_MAX },

    /* Follow from other registers, but after a reset not before a load */
    { "e1000e", "core.rx_desc_len", 0, 0 },
    { "e1000e", "core.rxbuf_sizes", 0, 3 },
    { "e1000e", "core.rx_desc_buf_size", 0, 3 },

    /* Loaded only if a request is to be tried again, what was tried last */
    { "ide bmdma", "migration_retry_unit", 0, 0 },
    { "ide bmdma", "migration_retry_sector_num", 0, 7 },
    { "ide bmdma", "migration_retry_nsector", 0, 3 },

    /*
     * A new VM generation ID is an event of ACPI's, whose interrupt, mostly 9,
     * a CPU may have been told to look at (CPU_INTERRUPT_POLL)
     */
    { "cpu_common", "interrupt_request", 3, 3, 0x10 },
    { "gpe", "sts", 0, 1, ACPI_VMGENID_CHANGE_STATUS },
    { "ich9_pm", "acpi_regs.gpe.sts", 0, 1, ACPI_VMGENID_CHANGE_STATUS },

    /* Counts what QEMU has drawn for its client */
    { "qxl", "ssd.unique", 0, 3 },

    /* KVM's PIT goes on at once when it is loaded: interrupt 0 */
    { "i8259", "irr", 0, 0, 1, true },

    /* So do timers of its APIC: their interrupts, and a deadline that is over */
    { "ioapic", "irr", 0, 3, 0, true },
    { "apic", "irr", 0, 3, 0, true },
    { "cpu/msr_tscdeadline", NULL, 0, 0, 0, true },

    /* When KVM's APIC was read: nothing of it is given to KVM */
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
 * What QEMU saves of it is what it will give to KVM when the guest goes on, so
 * that the guest's clock would go on from now.
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

bool ram_reset_load_what_saves_change(const DeviceSections *snapshot,
                                      Error **errp)
{
    const DeviceSection *s = device_sections_find(snapshot, kvmclock, 0, 0);
    Object *obj = object_resolve_path_type("", kvmclock, NULL);

    return !s || !obj || load_section(s, DEVICE(obj), errp);
}
