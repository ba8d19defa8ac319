/*
 * snapctl tests: the guest's side of the device
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/timer.h"
#include "libqos/generic-pcihost.h"
#include "libqos/pci-pc.h"
#include "snapctl.h"

static void found(QPCIDevice *dev, int devfn, void *opaque)
{
    QPCIDevice **pci = opaque;

    g_assert_null(*pci);
    *pci = dev;
}

static QPCIBus *new_bus(QTestState *qts)
{
    QGenericPCIBus *generic;

    if (the_machine()->is_pc) {
        return qpci_new_pc(qts, NULL);
    }
    generic = g_new0(QGenericPCIBus, 1);
    qpci_init_generic(generic, qts, NULL, false);
    return &generic->bus;
}

void snapctl_attach(Snapctl *s)
{
    s->bus = new_bus(s->vm->qts);
    s->pci = NULL;
    qpci_device_foreach(s->bus, SNAPCTL_PCI_VENDOR_ID, SNAPCTL_PCI_DEVICE_ID,
                        found, &s->pci);
    g_assert_nonnull(s->pci);
    qpci_device_enable(s->pci);
    s->regs = qpci_iomap(s->pci, SNAPCTL_REGS_BAR, NULL);
}

void snapctl_detach(Snapctl *s)
{
    g_free(s->pci);
    if (the_machine()->is_pc) {
        qpci_free_pc(s->bus);
    } else {
        g_free(container_of(s->bus, QGenericPCIBus, bus));
    }
}

Snapctl snapctl_start(const char *args)
{
    Snapctl s = { .vm = vm_start(MEM_ANON, SIZE, args) };

    snapctl_attach(&s);
    return s;
}

void snapctl_end(Snapctl *s)
{
    snapctl_detach(s);
    vm_end(s->vm);
}

uint32_t snapctl_get(Snapctl *s, uint64_t reg)
{
    return qpci_io_readl(s->pci, s->regs, reg);
}

uint64_t snapctl_get64(Snapctl *s, uint64_t reg)
{
    return qpci_io_readq(s->pci, s->regs, reg);
}

void snapctl_set(Snapctl *s, uint64_t reg, uint32_t value)
{
    qpci_io_writel(s->pci, s->regs, reg, value);
}

void snapctl_get_random(Snapctl *s, uint8_t *to)
{
    qpci_memread(s->pci, s->regs, SNAPCTL_RANDOM, to, SNAPCTL_RANDOM_SIZE);
}

void snapctl_command(Snapctl *s, uint32_t slot, uint32_t value)
{
    snapctl_set(s, SNAPCTL_SLOT, slot);
    snapctl_set(s, SNAPCTL_COMMAND, value);
}

/* The main loop has run once when QMP has answered */
uint32_t snapctl_settled_status(Snapctl *s)
{
    uint32_t status;

    while ((status = snapctl_get(s, SNAPCTL_STATUS)) ==
           SNAPCTL_STATUS_PENDING) {
        qtest_qmp_assert_success(s->vm->qts, "{'execute': 'query-status'}");
    }
    return status;
}

void snapctl_expect(Snapctl *s, uint32_t status, uint32_t error)
{
    g_assert_cmpuint(snapctl_settled_status(s), ==, status);
    g_assert_cmpuint(snapctl_get(s, SNAPCTL_ERROR), ==, error);
}

void snapctl_save(Snapctl *s, uint32_t slot)
{
    snapctl_command(s, slot, SNAPCTL_COMMAND_SAVE);
    snapctl_expect(s, SNAPCTL_STATUS_SAVED, SNAPCTL_ERROR_NONE);
}

void snapctl_load(Snapctl *s, uint32_t slot)
{
    snapctl_command(s, slot, SNAPCTL_COMMAND_LOAD);
    snapctl_expect(s, SNAPCTL_STATUS_LOADED, SNAPCTL_ERROR_NONE);
}

QDict *snapctl_query(Snapctl *s)
{
    return qtest_qmp_assert_success_ref(s->vm->qts,
                                        "{'execute': 'query-snapctl'}");
}

uint64_t snapctl_counted(Snapctl *s, const char *what)
{
    g_autoptr(QDict) info = snapctl_query(s);

    return qdict_get_int(info, what);
}

void snapctl_qmp(Snapctl *s, const char *name)
{
    qtest_qmp_assert_success(s->vm->qts, "{'execute': %s}", name);
}

void snapctl_expect_run_state(Snapctl *s, const char *state)
{
    g_autoptr(QDict) info = qtest_qmp_assert_success_ref(
        s->vm->qts, "{'execute': 'query-status'}");

    g_assert_cmpstr(qdict_get_str(info, "status"), ==, state);
}

void snapctl_expect_event(Snapctl *s, const char *action, uint32_t slot,
                          const char *tag, const char *error)
{
    g_autoptr(QDict) event = NULL;
    QDict *data;

    /* QEMU sends one event in each second of the guest's time */
    qtest_clock_step(s->vm->qts, NANOSECONDS_PER_SECOND);
    event = qtest_qmp_eventwait_ref(s->vm->qts, "SNAPCTL_COMPLETED");
    data = qdict_get_qdict(event, "data");
    g_assert_cmpstr(qdict_get_str(data, "command"), ==, action);
    g_assert_cmpstr(qdict_get_str(data, "tag"), ==, tag);
    g_assert_cmpuint(qdict_get_int(data, "slot"), ==, slot);
    g_assert_cmpint(qdict_get_bool(data, "success"), ==, !error);
    g_assert_cmpint(qdict_get_int(data, "time-ns"), >, 0);
    g_assert_cmpstr(qdict_get_str(data, "qom-path"), ==,
                    "/machine/peripheral/snap0");
    if (error) {
        g_assert_true(g_regex_match_simple(
            error, qdict_get_str(data, "error"), 0, 0));
    }
}
