/*
 * snapctl: registers, permissions, what saves and loads leave
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/units.h"
#include "qobject/qdict.h"
#include "hw/misc/snapctl-regs.h"
#include "hw/pci/pci_ids.h"
#include "hw/pci/pci_regs.h"
#include "libqos/pci-pc.h"
#include "ram-reset/framework.h"

#define SIZE            (16 * MiB)
#define PLACE           (2 * MiB)       /* where nothing else writes */
#define MSI_DATA        0x5aa5c33c
#define REGION_SIZE     (1 * MiB)
#define REGION          "-object memory-backend-memfd,id=region,size=1M "
#define BOTH            "-device snapctl,id=snap0,allow=both,slots=a:b"

typedef struct Snapctl {
    Vm *vm;
    QPCIBus *bus;
    QPCIDevice *pci;
    QPCIBar regs;
} Snapctl;

static void found(QPCIDevice *dev, int devfn, void *opaque)
{
    QPCIDevice **pci = opaque;

    g_assert_null(*pci);
    *pci = dev;
}

static void attach(Snapctl *s)
{
    s->bus = qpci_new_pc(s->vm->qts, NULL);
    s->pci = NULL;
    qpci_device_foreach(s->bus, SNAPCTL_PCI_VENDOR_ID, SNAPCTL_PCI_DEVICE_ID,
                        found, &s->pci);
    g_assert_nonnull(s->pci);
    qpci_device_enable(s->pci);
    s->regs = qpci_iomap(s->pci, SNAPCTL_REGS_BAR, NULL);
}

static void detach(Snapctl *s)
{
    g_free(s->pci);
    qpci_free_pc(s->bus);
}

static Snapctl start(const char *args)
{
    Snapctl s = { .vm = vm_start(MEM_ANON, SIZE, args) };

    attach(&s);
    return s;
}

static void end(Snapctl *s)
{
    detach(s);
    vm_end(s->vm);
}

static uint32_t get(Snapctl *s, uint64_t reg)
{
    return qpci_io_readl(s->pci, s->regs, reg);
}

static uint64_t get64(Snapctl *s, uint64_t reg)
{
    return qpci_io_readq(s->pci, s->regs, reg);
}

static void set(Snapctl *s, uint64_t reg, uint32_t value)
{
    qpci_io_writel(s->pci, s->regs, reg, value);
}

static void get_random(Snapctl *s, uint8_t *to)
{
    qpci_memread(s->pci, s->regs, SNAPCTL_RANDOM, to, SNAPCTL_RANDOM_SIZE);
}

static void command(Snapctl *s, uint32_t slot, uint32_t value)
{
    set(s, SNAPCTL_SLOT, slot);
    set(s, SNAPCTL_COMMAND, value);
}

/* The main loop has had a turn when QMP has answered */
static uint32_t settled_status(Snapctl *s)
{
    uint32_t status;

    while ((status = get(s, SNAPCTL_STATUS)) == SNAPCTL_STATUS_PENDING) {
        qtest_qmp_assert_success(s->vm->qts, "{'execute': 'query-status'}");
    }
    return status;
}

static void expect(Snapctl *s, uint32_t status, uint32_t error)
{
    g_assert_cmpuint(settled_status(s), ==, status);
    g_assert_cmpuint(get(s, SNAPCTL_ERROR), ==, error);
}

static void save(Snapctl *s, uint32_t slot)
{
    command(s, slot, SNAPCTL_COMMAND_SAVE);
    expect(s, SNAPCTL_STATUS_SAVED, SNAPCTL_ERROR_NONE);
}

static void load(Snapctl *s, uint32_t slot)
{
    command(s, slot, SNAPCTL_COMMAND_LOAD);
    expect(s, SNAPCTL_STATUS_LOADED, SNAPCTL_ERROR_NONE);
}

static QDict *query(Snapctl *s)
{
    return qtest_qmp_assert_success_ref(s->vm->qts,
                                        "{'execute': 'query-snapctl'}");
}

static uint64_t counted(Snapctl *s, const char *what)
{
    g_autoptr(QDict) info = query(s);

    return qdict_get_int(info, what);
}

static void qmp(Snapctl *s, const char *name)
{
    qtest_qmp_assert_success(s->vm->qts, "{'execute': %s}", name);
}

/* Of a command that has been executed; others have none */
static void expect_event(Snapctl *s, const char *action, uint32_t slot,
                         const char *tag, const char *error)
{
    g_autoptr(QDict) event = qtest_qmp_eventwait_ref(s->vm->qts,
                                                     "SNAPCTL_COMPLETED");
    QDict *data = qdict_get_qdict(event, "data");

    g_assert_cmpstr(qdict_get_str(data, "command"), ==, action);
    g_assert_cmpstr(qdict_get_str(data, "tag"), ==, tag);
    g_assert_cmpuint(qdict_get_int(data, "slot"), ==, slot);
    g_assert_cmpint(qdict_get_bool(data, "success"), ==, !error);
    g_assert_cmpint(qdict_get_int(data, "time-ns"), >, 0);
    g_assert_cmpstr(qdict_get_str(data, "qom-path"), ==,
                    "/machine/peripheral/snap0");
    if (error) {
        g_assert_nonnull(strstr(qdict_get_str(data, "error"), error));
    }
}

static void test_registers(const void *machine)
{
    g_autofree char *args = g_strdup_printf(
        "-M %s " REGION BOTH ":c,memdev=region,min-interval=7",
        (const char *)machine);
    Snapctl s = start(args);
    uint64_t size;

    g_assert_cmpuint(qpci_config_readw(s.pci, PCI_CLASS_DEVICE), ==,
                     PCI_CLASS_SYSTEM_OTHER);
    g_assert_cmpuint(get(&s, SNAPCTL_MAGIC), ==, SNAPCTL_MAGIC_VALUE);
    g_assert_cmpuint(get(&s, SNAPCTL_VERSION), ==, SNAPCTL_VERSION_VALUE);
    g_assert_cmpuint(get(&s, SNAPCTL_FEATURES), ==,
                     SNAPCTL_FEATURE_SAVE | SNAPCTL_FEATURE_LOAD |
                     SNAPCTL_FEATURE_REGION | SNAPCTL_FEATURE_MSIX);
    g_assert_cmpuint(get(&s, SNAPCTL_SLOTS), ==, 3);
    g_assert_cmpuint(get(&s, SNAPCTL_MIN_INTERVAL), ==, 7);
    qpci_iomap(s.pci, SNAPCTL_REGION_BAR, &size);
    g_assert_cmpuint(size, ==, REGION_SIZE);

    /* what is not for writing, and what is not for reading */
    for (uint64_t reg = 0; reg < SNAPCTL_REGS_SIZE; reg += 4) {
        if (reg != SNAPCTL_SLOT && reg != SNAPCTL_COMMAND) {
            uint32_t value = get(&s, reg);

            set(&s, reg, ~value);
            g_assert_cmpuint(get(&s, reg), ==, value);
            g_assert_true(reg <= SNAPCTL_MIN_INTERVAL || !value);
        }
    }
    set(&s, SNAPCTL_SLOT, 0xfedcba98);
    g_assert_cmpuint(get(&s, SNAPCTL_SLOT), ==, 0xfedcba98);
    g_assert_cmpuint(get(&s, SNAPCTL_COMMAND), ==, 0);

    /* 8 bytes are two registers, other sizes nothing */
    g_assert_cmphex(get64(&s, SNAPCTL_MAGIC), ==,
                    (uint64_t)SNAPCTL_VERSION_VALUE << 32 |
                    SNAPCTL_MAGIC_VALUE);
    qpci_io_writeb(s.pci, s.regs, SNAPCTL_SLOT, 1);
    qpci_io_writew(s.pci, s.regs, SNAPCTL_SLOT, 1);
    g_assert_cmpuint(get(&s, SNAPCTL_SLOT), ==, 0xfedcba98);
    g_assert_cmpuint(qpci_io_readb(s.pci, s.regs, SNAPCTL_MAGIC), !=, 'S');
    qpci_io_writeq(s.pci, s.regs, SNAPCTL_SLOT,
                   (uint64_t)SNAPCTL_COMMAND_SAVE << 32 | 2);
    expect(&s, SNAPCTL_STATUS_SAVED, SNAPCTL_ERROR_NONE);
    expect_event(&s, "save", 2, "c", NULL);
    end(&s);
}

static void test_features(void)
{
    static const struct {
        const char *args;
        uint32_t features;
    } cases[] = {
        { "", SNAPCTL_FEATURE_LOAD },
        { ",allow=none", 0 },
        { ",allow=save", SNAPCTL_FEATURE_SAVE },
        { ",allow=load", SNAPCTL_FEATURE_LOAD },
    };

    for (int i = 0; i < ARRAY_SIZE(cases); i++) {
        g_autofree char *args = g_strdup_printf(
            "-device snapctl,id=snap0,slots=a%s", cases[i].args);
        Snapctl s = start(args);

        g_assert_cmpuint(get(&s, SNAPCTL_FEATURES), ==,
                         cases[i].features | SNAPCTL_FEATURE_MSIX);
        vm_save(s.vm, "a");
        for (uint32_t c = SNAPCTL_COMMAND_SAVE; c <= SNAPCTL_COMMAND_LOAD;
             c++) {
            bool allowed = cases[i].features & (1 << (c - 1));

            command(&s, 0, c);
            if (allowed) {
                g_assert_cmpuint(settled_status(&s), !=,
                                 SNAPCTL_STATUS_REFUSED);
            } else {
                g_assert_cmpuint(get(&s, SNAPCTL_STATUS), ==,
                                 SNAPCTL_STATUS_REFUSED);
                g_assert_cmpuint(get(&s, SNAPCTL_ERROR), ==,
                                 SNAPCTL_ERROR_DENIED);
            }
            g_assert_cmpuint(counted(&s, c == SNAPCTL_COMMAND_SAVE ? "saves"
                                     : "loads"), ==, allowed);
        }
        end(&s);
    }
}

static void test_refusals(void)
{
    Snapctl s = start(BOTH);

    command(&s, 0, 0);
    expect(&s, SNAPCTL_STATUS_REFUSED, SNAPCTL_ERROR_COMMAND);
    command(&s, 0, 3);
    expect(&s, SNAPCTL_STATUS_REFUSED, SNAPCTL_ERROR_COMMAND);
    command(&s, 2, SNAPCTL_COMMAND_SAVE);
    expect(&s, SNAPCTL_STATUS_REFUSED, SNAPCTL_ERROR_SLOT);
    command(&s, UINT32_MAX, SNAPCTL_COMMAND_LOAD);
    expect(&s, SNAPCTL_STATUS_REFUSED, SNAPCTL_ERROR_SLOT);
    command(&s, 1, SNAPCTL_COMMAND_LOAD);
    expect(&s, SNAPCTL_STATUS_REFUSED, SNAPCTL_ERROR_EMPTY);
    g_assert_cmpuint(counted(&s, "refused"), ==, 5);
    g_assert_cmpuint(counted(&s, "failures"), ==, 0);
    g_assert_cmpuint(get64(&s, SNAPCTL_GENERATION), ==, 0);

    /* a reset forgets that, and the guest has been running all the time */
    qmp(&s, "system_reset");
    qtest_qmp_eventwait(s.vm->qts, "RESET");
    qpci_device_enable(s.pci);
    s.regs = qpci_iomap(s.pci, SNAPCTL_REGS_BAR, NULL);
    g_assert_cmpuint(get(&s, SNAPCTL_STATUS), ==, SNAPCTL_STATUS_IDLE);
    g_assert_cmpuint(get(&s, SNAPCTL_ERROR), ==, SNAPCTL_ERROR_NONE);
    g_assert_cmpuint(get(&s, SNAPCTL_SLOT), ==, 0);
    save(&s, 0);
    end(&s);
}

/* @rewind: with a ram-reset object that rewinds, or without any */
static void test_save_and_load(const void *rewind)
{
    g_autofree char *args = g_strdup_printf(
        "%s " REGION BOTH ",memdev=region",
        rewind ? "-object ram-reset-auto,id=rr0,rewind=on" : "");
    uint8_t none[SNAPCTL_RANDOM_SIZE] = { 0 };
    uint8_t random[2][SNAPCTL_RANDOM_SIZE];
    Snapctl s = start(args);
    QPCIBar region = qpci_iomap(s.pci, SNAPCTL_REGION_BAR, NULL);

    get_random(&s, random[0]);
    g_assert_cmpmem(random[0], sizeof(none), none, sizeof(none));
    qtest_writel(s.vm->qts, PLACE, 1);
    save(&s, 1);
    expect_event(&s, "save", 1, "b", NULL);
    g_assert_cmpuint(get64(&s, SNAPCTL_GENERATION), ==, 0);
    g_assert_cmpuint(get64(&s, SNAPCTL_LOAD_NS), ==, 0);

    for (uint64_t i = 1; i <= 3; i++) {
        qtest_writel(s.vm->qts, PLACE, 2);
        qpci_io_writel(s.pci, region, 8, i);
        load(&s, 1);
        expect_event(&s, "load", 1, "b", NULL);
        g_assert_cmpuint(qtest_readl(s.vm->qts, PLACE), ==, 1);
        g_assert_cmpuint(qpci_io_readl(s.pci, region, 8), ==, i);
        g_assert_cmpuint(get(&s, SNAPCTL_SLOT), ==, 1);
        g_assert_cmpuint(get64(&s, SNAPCTL_GENERATION), ==, i);
        g_assert_cmpuint(get64(&s, SNAPCTL_LOAD_NS), >, 0);
        g_assert_cmpuint(get64(&s, SNAPCTL_LOAD_NS), <, 60 * 1000000000ull);
        get_random(&s, random[i % 2]);
        g_assert_true(memcmp(random[0], random[1], sizeof(none)));
    }
    if (rewind) {
        g_autoptr(QDict) info = vm_query(s.vm);

        g_assert_cmpint(qdict_get_int(info, "rewinds"), ==, 3);
    }

    /* what a reset leaves */
    qmp(&s, "system_reset");
    qtest_qmp_eventwait(s.vm->qts, "RESET");
    qpci_device_enable(s.pci);
    s.regs = qpci_iomap(s.pci, SNAPCTL_REGS_BAR, NULL);
    region = qpci_iomap(s.pci, SNAPCTL_REGION_BAR, NULL);
    g_assert_cmpuint(get64(&s, SNAPCTL_GENERATION), ==, 3);
    g_assert_cmpuint(qpci_io_readl(s.pci, region, 8), ==, 3);
    get_random(&s, random[0]);
    g_assert_cmpmem(random[0], sizeof(none), random[1], sizeof(none));
    g_assert_cmpuint(counted(&s, "saves"), ==, 1);
    g_assert_cmpuint(counted(&s, "loads"), ==, 3);
    g_assert_cmpuint(counted(&s, "refused"), ==, 0);
    end(&s);
}

/* Loads that the host's user asks for, of snapshots without slots, too */
static void test_loads_by_others(void)
{
    Snapctl s = start(BOTH);

    save(&s, 0);
    vm_save(s.vm, "other");
    vm_load(s.vm, "a");
    expect(&s, SNAPCTL_STATUS_LOADED, SNAPCTL_ERROR_NONE);
    g_assert_cmpuint(get64(&s, SNAPCTL_GENERATION), ==, 1);
    g_assert_cmpuint(get64(&s, SNAPCTL_LOAD_NS), >, 0);
    vm_load(s.vm, "other");
    expect(&s, SNAPCTL_STATUS_LOADED, SNAPCTL_ERROR_NONE);
    g_assert_cmpuint(get64(&s, SNAPCTL_GENERATION), ==, 2);
    g_assert_cmpuint(counted(&s, "loads"), ==, 0);

    /* how long the guest would have stood still is not known */
    qmp(&s, "stop");
    vm_load(s.vm, "a");
    qmp(&s, "cont");
    g_assert_cmpuint(get64(&s, SNAPCTL_GENERATION), ==, 3);
    g_assert_cmpuint(get64(&s, SNAPCTL_LOAD_NS), ==, 0);

    /* another QEMU's guest has not seen that generation before, either */
    save(&s, 1);
    detach(&s);
    vm_stop(s.vm);
    vm_run(s.vm, MEM_ANON, SIZE, BOTH " -loadvm b");
    attach(&s);
    expect(&s, SNAPCTL_STATUS_LOADED, SNAPCTL_ERROR_NONE);
    g_assert_cmpuint(get64(&s, SNAPCTL_GENERATION), ==, 4);
    load(&s, 0);
    g_assert_cmpuint(get64(&s, SNAPCTL_GENERATION), ==, 5);
    end(&s);
}

static void test_min_interval(void)
{
    Snapctl s = start(BOTH ",min-interval=700");
    int64_t begin;

    command(&s, 5, SNAPCTL_COMMAND_SAVE);
    expect(&s, SNAPCTL_STATUS_REFUSED, SNAPCTL_ERROR_SLOT);
    save(&s, 0);                /* what was refused does not count */
    begin = g_get_monotonic_time();
    for (int i = 0; i < 3; i++) {
        command(&s, 0, SNAPCTL_COMMAND_LOAD);
        while (get(&s, SNAPCTL_STATUS) == SNAPCTL_STATUS_REFUSED) {
            g_assert_cmpuint(get(&s, SNAPCTL_ERROR), ==,
                             SNAPCTL_ERROR_TOO_SOON);
            g_usleep(5000);
            command(&s, 0, SNAPCTL_COMMAND_LOAD);
        }
        expect(&s, SNAPCTL_STATUS_LOADED, SNAPCTL_ERROR_NONE);
    }
    /* a little less: the device's clock began before ours */
    g_assert_cmpint(g_get_monotonic_time() - begin, >=, 2050000);
    g_assert_cmpuint(counted(&s, "loads"), ==, 3);
    end(&s);
}

/* A command waits until the guest goes on, unless the guest is taken back */
static void test_stopped(void)
{
    Snapctl s = start(BOTH);

    qtest_writel(s.vm->qts, PLACE, 1);
    save(&s, 0);
    qmp(&s, "stop");
    qtest_writel(s.vm->qts, PLACE, 2);
    command(&s, 0, SNAPCTL_COMMAND_LOAD);
    qtest_qmp_assert_success(s.vm->qts, "{'execute': 'query-status'}");
    g_assert_cmpuint(get(&s, SNAPCTL_STATUS), ==, SNAPCTL_STATUS_PENDING);
    g_assert_cmpuint(qtest_readl(s.vm->qts, PLACE), ==, 2);
    command(&s, 1, SNAPCTL_COMMAND_SAVE);
    g_assert_cmpuint(get(&s, SNAPCTL_SLOT), ==, 0);
    g_assert_cmpuint(counted(&s, "refused"), ==, 1);
    vm_save(s.vm, "pending");
    qmp(&s, "cont");
    expect(&s, SNAPCTL_STATUS_LOADED, SNAPCTL_ERROR_NONE);
    g_assert_cmpuint(qtest_readl(s.vm->qts, PLACE), ==, 1);

    vm_load(s.vm, "pending");
    qtest_qmp_assert_success(s.vm->qts, "{'execute': 'query-status'}");
    g_assert_cmpuint(get(&s, SNAPCTL_STATUS), ==, SNAPCTL_STATUS_LOADED);
    g_assert_cmpuint(qtest_readl(s.vm->qts, PLACE), ==, 2);
    g_assert_cmpuint(counted(&s, "loads"), ==, 1);

    qmp(&s, "stop");
    command(&s, 0, SNAPCTL_COMMAND_LOAD);
    vm_load(s.vm, "pending");
    qmp(&s, "cont");
    qtest_qmp_assert_success(s.vm->qts, "{'execute': 'query-status'}");
    g_assert_cmpuint(qtest_readl(s.vm->qts, PLACE), ==, 2);
    g_assert_cmpuint(counted(&s, "loads"), ==, 1);
    end(&s);
}

/* The message goes to RAM here, where it can be seen */
static void test_interrupt(void)
{
    Snapctl s = start(BOTH);
    uint64_t table;

    qpci_msix_enable(s.pci);
    g_assert_cmpuint(qpci_msix_table_size(s.pci), ==, 1);
    table = s.pci->msix_table_off;
    qpci_io_writel(s.pci, s.pci->msix_table_bar,
                   table + PCI_MSIX_ENTRY_LOWER_ADDR, PLACE);
    qpci_io_writel(s.pci, s.pci->msix_table_bar,
                   table + PCI_MSIX_ENTRY_UPPER_ADDR, 0);
    qpci_io_writel(s.pci, s.pci->msix_table_bar, table + PCI_MSIX_ENTRY_DATA,
                   MSI_DATA);
    qpci_io_writel(s.pci, s.pci->msix_table_bar,
                   table + PCI_MSIX_ENTRY_VECTOR_CTRL, 0);

    save(&s, 0);
    g_assert_cmphex(qtest_readl(s.vm->qts, PLACE), ==, 0);
    load(&s, 0);
    g_assert_cmphex(qtest_readl(s.vm->qts, PLACE), ==, MSI_DATA);

    /* not before the guest goes on, and once */
    qmp(&s, "stop");
    vm_load(s.vm, "a");
    g_assert_cmphex(qtest_readl(s.vm->qts, PLACE), ==, 0);
    qmp(&s, "cont");
    g_assert_cmphex(qtest_readl(s.vm->qts, PLACE), ==, MSI_DATA);
    qtest_writel(s.vm->qts, PLACE, 0);
    qmp(&s, "stop");
    qmp(&s, "cont");
    g_assert_cmphex(qtest_readl(s.vm->qts, PLACE), ==, 0);
    end(&s);
}

static void expect_run_state(Snapctl *s, const char *state)
{
    g_autoptr(QDict) info = qtest_qmp_assert_success_ref(
        s->vm->qts, "{'execute': 'query-status'}");

    g_assert_cmpstr(qdict_get_str(info, "status"), ==, state);
}

/* A snapshot that has more devices than this QEMU */
static void test_failed_load(void)
{
    Snapctl s = start(BOTH " -device e1000,romfile=");

    vm_save(s.vm, "b");
    detach(&s);
    vm_stop(s.vm);
    vm_run(s.vm, MEM_ANON, SIZE, BOTH);
    attach(&s);
    qtest_writel(s.vm->qts, PLACE, 1);
    save(&s, 0);
    expect_event(&s, "save", 0, "a", NULL);
    command(&s, 1, SNAPCTL_COMMAND_LOAD);
    expect_event(&s, "load", 1, "b", "while loading VM state");
    expect_run_state(&s, "restore-vm");
    g_assert_cmpuint(counted(&s, "failures"), ==, 1);

    /* a good one mends it */
    vm_load(s.vm, "a");
    qmp(&s, "cont");
    expect(&s, SNAPCTL_STATUS_LOADED, SNAPCTL_ERROR_NONE);
    g_assert_cmpuint(qtest_readl(s.vm->qts, PLACE), ==, 1);
    load(&s, 0);
    end(&s);
}

static void add_disk_only_snapshot(Snapctl *s, const char *tag)
{
    const char *argv[] = { getenv("QTEST_QEMU_IMG"), "snapshot", "-c", tag,
                           s->vm->disk, NULL };

    g_assert_true(g_spawn_sync(NULL, (char **)argv, NULL, 0, NULL, NULL, NULL,
                               NULL, NULL, NULL));
}

/* Nothing has been changed by the failure: the guest can go on */
static void test_failure_before_a_change(void)
{
    Snapctl s = start(BOTH);

    detach(&s);
    vm_stop(s.vm);
    add_disk_only_snapshot(&s, "b");
    vm_run(s.vm, MEM_ANON, SIZE, BOTH);
    attach(&s);
    qtest_writel(s.vm->qts, PLACE, 1);
    command(&s, 1, SNAPCTL_COMMAND_LOAD);
    expect_event(&s, "load", 1, "b", "disk-only");
    expect_run_state(&s, "restore-vm");
    qmp(&s, "cont");
    expect(&s, SNAPCTL_STATUS_FAILED, SNAPCTL_ERROR_HOST);
    expect_run_state(&s, "running");
    g_assert_cmpuint(qtest_readl(s.vm->qts, PLACE), ==, 1);
    g_assert_cmpuint(get64(&s, SNAPCTL_GENERATION), ==, 0);
    end(&s);
}

static void test_failed_save(void)
{
    Snapctl s = start(BOTH " -drive if=none,id=d1,driver=null-co,"
                      "read-zeroes=on");

    for (uint64_t i = 1; i < 3; i++) {
        command(&s, 0, SNAPCTL_COMMAND_SAVE);
        expect(&s, SNAPCTL_STATUS_FAILED, SNAPCTL_ERROR_HOST);
        expect_event(&s, "save", 0, "a", "d1");
        expect_run_state(&s, "running");
        g_assert_cmpuint(counted(&s, "failures"), ==, i);
    }
    end(&s);
}

static void wait_for_migration(QTestState *qts)
{
    for (;;) {
        g_autoptr(QDict) info = qtest_qmp_assert_success_ref(
            qts, "{'execute': 'query-migrate'}");
        const char *status = qdict_get_try_str(info, "status");

        g_assert_cmpstr(status ?: "", !=, "failed");
        if (!g_strcmp0(status, "completed")) {
            return;
        }
        g_usleep(1000);
    }
}

/* The guest goes on there: not a new generation, and the command as well */
static void test_migration(void)
{
    g_autofree char *file = g_strdup_printf("%s/snapctl-migration.%d",
                                            g_get_tmp_dir(), getpid());
    g_autofree char *uri = g_strdup_printf("file:%s", file);
    g_autofree char *args = g_strdup_printf(
        REGION BOTH ",memdev=region -incoming %s", uri);
    uint8_t random[2][SNAPCTL_RANDOM_SIZE];
    Snapctl s = start(REGION BOTH ",memdev=region");
    QPCIBar region = qpci_iomap(s.pci, SNAPCTL_REGION_BAR, NULL);
    uint64_t load_ns;

    qtest_writel(s.vm->qts, PLACE, 1);
    save(&s, 1);
    load(&s, 1);
    load(&s, 1);
    get_random(&s, random[0]);
    load_ns = get64(&s, SNAPCTL_LOAD_NS);
    qpci_io_writel(s.pci, region, 0, 4711);
    qtest_writel(s.vm->qts, PLACE, 2);
    qmp(&s, "stop");
    command(&s, 1, SNAPCTL_COMMAND_LOAD);
    qtest_qmp_assert_success(s.vm->qts, "{'execute': 'migrate', "
                             "'arguments': {'uri': %s}}", uri);
    wait_for_migration(s.vm->qts);
    g_assert_cmpuint(get(&s, SNAPCTL_STATUS), ==, SNAPCTL_STATUS_PENDING);
    detach(&s);
    vm_stop(s.vm);

    vm_run(s.vm, MEM_ANON, SIZE, args);
    wait_for_migration(s.vm->qts);
    attach(&s);
    g_assert_cmpuint(get(&s, SNAPCTL_STATUS), ==, SNAPCTL_STATUS_PENDING);
    g_assert_cmpuint(get64(&s, SNAPCTL_GENERATION), ==, 2);
    g_assert_cmpuint(get64(&s, SNAPCTL_LOAD_NS), ==, load_ns);
    get_random(&s, random[1]);
    g_assert_cmpmem(random[0], sizeof(random[0]), random[1],
                    sizeof(random[0]));
    region = qpci_iomap(s.pci, SNAPCTL_REGION_BAR, NULL);
    g_assert_cmpuint(qpci_io_readl(s.pci, region, 0), ==, 0);
    g_assert_cmpuint(qtest_readl(s.vm->qts, PLACE), ==, 2);
    qmp(&s, "cont");
    expect(&s, SNAPCTL_STATUS_LOADED, SNAPCTL_ERROR_NONE);
    g_assert_cmpuint(qtest_readl(s.vm->qts, PLACE), ==, 1);
    g_assert_cmpuint(get64(&s, SNAPCTL_GENERATION), ==, 3);
    unlink(file);
    end(&s);
}

/* A guest that is being migrated is not taken away from under that */
static void test_busy(void)
{
    Snapctl s = start(BOTH);

    vm_fill(s.vm, PLACE, 8 * MiB, 0x5a);
    save(&s, 0);
    qtest_qmp_assert_success(s.vm->qts,
        "{'execute': 'migrate-set-parameters', "
        "'arguments': {'max-bandwidth': 4096}}");
    qtest_qmp_assert_success(s.vm->qts, "{'execute': 'migrate', "
                             "'arguments': {'uri': 'exec:cat >/dev/null'}}");
    for (uint32_t c = SNAPCTL_COMMAND_SAVE; c <= SNAPCTL_COMMAND_LOAD; c++) {
        command(&s, 0, c);
        expect(&s, SNAPCTL_STATUS_REFUSED, SNAPCTL_ERROR_BUSY);
    }
    qmp(&s, "migrate_cancel");
    do {
        command(&s, 0, SNAPCTL_COMMAND_LOAD);
    } while (settled_status(&s) == SNAPCTL_STATUS_REFUSED);
    expect(&s, SNAPCTL_STATUS_LOADED, SNAPCTL_ERROR_NONE);
    end(&s);
}

static void test_unplug(void)
{
    Snapctl s = { .vm = vm_start(MEM_ANON, SIZE, "") };

    for (int i = 0; i < 2; i++) {
        qtest_qmp_assert_success(s.vm->qts, "{'execute': 'device_add', "
            "'arguments': {'driver': 'snapctl', 'id': 'snap0', "
            "'allow': 'both', 'slots': 'a', 'addr': '0x5'}}");
        attach(&s);
        save(&s, 0);
        load(&s, 0);
        qmp(&s, "stop");
        command(&s, 0, SNAPCTL_COMMAND_LOAD);   /* never to be done */
        qpci_unplug_acpi_device_test(s.vm->qts, "snap0", 5);
        qmp(&s, "cont");
        detach(&s);
    }
    vm_end(s.vm);
}

static void hammer_for(Snapctl *s, double seconds)
{
    GTimer *timer = g_timer_new();

    while (g_timer_elapsed(timer, NULL) < seconds) {
        uint64_t reg = g_test_rand_int_range(0, 0x20) * 4;
        uint32_t value = g_test_rand_int_range(0, 5);

        if (g_test_rand_int_range(0, 8)) {
            set(s, g_test_rand_bit() ? SNAPCTL_SLOT + g_test_rand_bit() * 4
                                     : reg, value);
        } else if (g_test_rand_bit()) {
            qpci_io_writeq(s->pci, s->regs, reg, g_test_rand_int());
        } else {
            get(s, reg);
        }
    }
    g_timer_destroy(timer);
}

static void test_hammer(void)
{
    Snapctl s = start("-object ram-reset-auto,id=rr0,rewind=on " BOTH);

    save(&s, 0);
    hammer_for(&s, 3);
    settled_status(&s);
    g_assert_cmpuint(counted(&s, "loads"), >, 0);
    g_assert_cmpuint(counted(&s, "saves"), >, 1);
    g_assert_cmpuint(counted(&s, "refused"), >, 0);
    g_assert_cmpuint(counted(&s, "failures"), ==, 0);
    g_assert_cmpuint(get64(&s, SNAPCTL_GENERATION), ==, counted(&s, "loads"));
    load(&s, 0);
    end(&s);
}

static void test_query(void)
{
    Snapctl s = start(REGION "-device snapctl,id=snap0,allow=save,slots=x.y,"
                      "min-interval=3,memdev=region");
    g_autoptr(QDict) info = query(&s);
    g_autofree char *hmp = NULL;

    g_assert_cmpstr(qdict_get_str(info, "qom-path"), ==,
                    "/machine/peripheral/snap0");
    g_assert_cmpstr(qdict_get_str(info, "allow"), ==, "save");
    g_assert_cmpint(qdict_get_int(info, "min-interval"), ==, 3);
    g_assert_cmpint(qdict_get_int(info, "region-size"), ==, REGION_SIZE);
    g_assert_false(qdict_get_bool(info, "pending"));
    g_assert_false(qdict_haskey(info, "last"));
    save(&s, 0);
    hmp = qtest_hmp(s.vm->qts, "info snapctl");
    g_assert_nonnull(strstr(hmp, "slot 0: snapshot 'x.y'"));
    g_assert_nonnull(strstr(hmp, "allow save"));
    g_assert_nonnull(strstr(hmp, "1 save(s), 0 load(s)"));
    g_assert_nonnull(strstr(hmp, "last: save of slot 0, 'x.y'"));
    end(&s);
}

static void test_no_device(void)
{
    Vm *vm = vm_start(MEM_ANON, SIZE, "");
    QDict *answer = qtest_qmp(vm->qts, "{'execute': 'query-snapctl'}");
    g_autofree char *hmp = qtest_hmp(vm->qts, "info snapctl");

    g_assert_cmpstr(qdict_get_str(qdict_get_qdict(answer, "error"), "class"),
                    ==, "DeviceNotFound");
    g_assert_nonnull(strstr(hmp, "there is no snapctl device"));
    qobject_unref(answer);
    vm_end(vm);
}

static void test_bad_options(void)
{
    g_autofree char *name = g_strnfill(256, 'n');
    g_autofree char *args = g_strdup_printf("-device snapctl,slots=%s", name);

    assert_no_start(BOTH " -device snapctl", "snapctl", "one snapctl device");
    assert_no_start("-device snapctl,slots=a::b", "snapctl",
                    "the name '' of slot 1");
    assert_no_start(args, "snapctl", "1 to 255 bytes");
    assert_no_start("-device snapctl,allow=all", "allow", "all");
    assert_no_start("-device snapctl,memdev=nope", "nope", "not found");
    assert_no_start("-object memory-backend-ram,id=odd,size=12k "
                    "-device snapctl,memdev=odd", "memdev=odd",
                    "power of two");
    assert_no_start("-object memory-backend-ram,id=main,size=128M "
                    "-machine memory-backend=main "
                    "-device snapctl,memdev=main", "memdev=main", "in use");
    assert_no_start(REGION "-device snapctl,memdev=region "
                    "-object ram-reset-madvise,id=rr0,memdev=region",
                    "memdev 'region'", "no part of snapshots");
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    if (!have_qemu_img()) {
        g_test_message("QTEST_QEMU_IMG is not set, or is no qemu-img");
        return g_test_run();
    }
    qtest_add_data_func("snapctl/registers/pc", "pc", test_registers);
    qtest_add_data_func("snapctl/registers/q35", "q35", test_registers);
    qtest_add_func("snapctl/features", test_features);
    qtest_add_func("snapctl/refusals", test_refusals);
    qtest_add_data_func("snapctl/save-and-load/whole", NULL,
                        test_save_and_load);
    qtest_add_data_func("snapctl/save-and-load/rewind", "on",
                        test_save_and_load);
    qtest_add_func("snapctl/loads-by-others", test_loads_by_others);
    qtest_add_func("snapctl/min-interval", test_min_interval);
    qtest_add_func("snapctl/stopped", test_stopped);
    qtest_add_func("snapctl/interrupt", test_interrupt);
    qtest_add_func("snapctl/failed-load", test_failed_load);
    qtest_add_func("snapctl/failed-save", test_failed_save);
    qtest_add_func("snapctl/failure-before-a-change",
                   test_failure_before_a_change);
    qtest_add_func("snapctl/migration", test_migration);
    qtest_add_func("snapctl/busy", test_busy);
    qtest_add_func("snapctl/unplug", test_unplug);
    qtest_add_func("snapctl/hammer", test_hammer);
    qtest_add_func("snapctl/query", test_query);
    qtest_add_func("snapctl/no-device", test_no_device);
    qtest_add_func("snapctl/bad-options", test_bad_options);
    return g_test_run();
}
