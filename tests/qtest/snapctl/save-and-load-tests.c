/*
 * snapctl: state after saves, loads, resets and unplugging
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "hw/pci/pci_regs.h"
#include "snapctl.h"

#define MSI_DATA    0x5aa5c33c

/* @rewind: with a ram-reset object with rewind=on, or without an object */
static void test_save_and_load(const void *rewind)
{
    g_autofree char *args = g_strdup_printf(
        "%s " REGION BOTH ",memdev=region",
        rewind ? "-object ram-reset-auto,id=rr0,rewind=on "
                 "-object ram-reset-memset,id=rr1,memdev=region" : "");
    uint8_t none[SNAPCTL_RANDOM_SIZE] = { 0 };
    uint8_t random[2][SNAPCTL_RANDOM_SIZE];
    Snapctl s = snapctl_start(args);
    QPCIBar region = qpci_iomap(s.pci, SNAPCTL_REGION_BAR, NULL);

    snapctl_get_random(&s, random[0]);
    g_assert_cmpmem(random[0], sizeof(none), none, sizeof(none));
    qtest_writel(s.vm->qts, PLACE, 1);
    snapctl_save(&s, 1);
    snapctl_expect_event(&s, "save", 1, "b", NULL);
    g_assert_cmpuint(snapctl_get64(&s, SNAPCTL_GENERATION), ==, 0);
    g_assert_cmpuint(snapctl_get64(&s, SNAPCTL_LOAD_NS), ==, 0);

    for (uint64_t i = 1; i <= 3; i++) {
        qtest_writel(s.vm->qts, PLACE, 2);
        qpci_io_writel(s.pci, region, 8, i);
        snapctl_load(&s, 1);
        snapctl_expect_event(&s, "load", 1, "b", NULL);
        g_assert_cmpuint(qtest_readl(s.vm->qts, PLACE), ==, 1);
        g_assert_cmpuint(qpci_io_readl(s.pci, region, 8), ==, i);
        g_assert_cmpuint(snapctl_get(&s, SNAPCTL_SLOT), ==, 1);
        g_assert_cmpuint(snapctl_get64(&s, SNAPCTL_GENERATION), ==, i);
        g_assert_cmpuint(snapctl_get64(&s, SNAPCTL_LOAD_NS), >, 0);
        g_assert_cmpuint(snapctl_get64(&s, SNAPCTL_LOAD_NS), <,
                         60 * 1000000000ull);
        snapctl_get_random(&s, random[i % 2]);
        g_assert_true(memcmp(random[0], random[1], sizeof(none)));
    }
    if (rewind) {
        g_autoptr(QDict) info = vm_query(s.vm);

        g_assert_cmpint(qdict_get_int(info, "rewinds"), ==, 3);
    }

    /* state after a reset */
    snapctl_qmp(&s, "system_reset");
    qtest_qmp_eventwait(s.vm->qts, "RESET");
    qpci_device_enable(s.pci);
    s.regs = qpci_iomap(s.pci, SNAPCTL_REGS_BAR, NULL);
    region = qpci_iomap(s.pci, SNAPCTL_REGION_BAR, NULL);
    g_assert_cmpuint(snapctl_get64(&s, SNAPCTL_GENERATION), ==, 3);
    g_assert_cmpuint(qpci_io_readl(s.pci, region, 8), ==, 3);
    snapctl_get_random(&s, random[0]);
    g_assert_cmpmem(random[0], sizeof(none), random[1], sizeof(none));
    g_assert_cmpuint(snapctl_counted(&s, "saves"), ==, 1);
    g_assert_cmpuint(snapctl_counted(&s, "loads"), ==, 3);
    g_assert_cmpuint(snapctl_counted(&s, "refused"), ==, 0);
    snapctl_end(&s);
}

/* Loads that the host's user requests, also of snapshots without slots */
static void test_loads_by_others(void)
{
    Snapctl s = snapctl_start(BOTH);

    snapctl_save(&s, 0);
    vm_save(s.vm, "other");
    vm_load(s.vm, "a");
    snapctl_expect(&s, SNAPCTL_STATUS_LOADED, SNAPCTL_ERROR_NONE);
    g_assert_cmpuint(snapctl_get64(&s, SNAPCTL_GENERATION), ==, 1);
    g_assert_cmpuint(snapctl_get64(&s, SNAPCTL_LOAD_NS), >, 0);
    vm_load(s.vm, "other");
    snapctl_expect(&s, SNAPCTL_STATUS_LOADED, SNAPCTL_ERROR_NONE);
    g_assert_cmpuint(snapctl_get64(&s, SNAPCTL_GENERATION), ==, 2);
    g_assert_cmpuint(snapctl_counted(&s, "loads"), ==, 0);

    /* the time that the guest would have been stopped is not known */
    snapctl_qmp(&s, "stop");
    vm_load(s.vm, "a");
    snapctl_qmp(&s, "cont");
    g_assert_cmpuint(snapctl_get64(&s, SNAPCTL_GENERATION), ==, 3);
    g_assert_cmpuint(snapctl_get64(&s, SNAPCTL_LOAD_NS), ==, 0);

    /* a guest of another QEMU has not seen that generation either */
    snapctl_save(&s, 1);
    snapctl_detach(&s);
    vm_stop(s.vm);
    vm_run(s.vm, MEM_ANON, SIZE, BOTH " -loadvm b");
    snapctl_attach(&s);
    snapctl_expect(&s, SNAPCTL_STATUS_LOADED, SNAPCTL_ERROR_NONE);
    g_assert_cmpuint(snapctl_get64(&s, SNAPCTL_GENERATION), ==, 4);
    snapctl_load(&s, 0);
    g_assert_cmpuint(snapctl_get64(&s, SNAPCTL_GENERATION), ==, 5);
    snapctl_end(&s);
}

/* A command waits until the guest resumes, unless a load resets it */
static void test_stopped(void)
{
    Snapctl s = snapctl_start(BOTH);

    qtest_writel(s.vm->qts, PLACE, 1);
    snapctl_save(&s, 0);
    snapctl_qmp(&s, "stop");
    qtest_writel(s.vm->qts, PLACE, 2);
    snapctl_command(&s, 0, SNAPCTL_COMMAND_LOAD);
    qtest_qmp_assert_success(s.vm->qts, "{'execute': 'query-status'}");
    g_assert_cmpuint(snapctl_get(&s, SNAPCTL_STATUS), ==,
                     SNAPCTL_STATUS_PENDING);
    g_assert_cmpuint(qtest_readl(s.vm->qts, PLACE), ==, 2);
    snapctl_command(&s, 1, SNAPCTL_COMMAND_SAVE);
    g_assert_cmpuint(snapctl_get(&s, SNAPCTL_SLOT), ==, 0);
    g_assert_cmpuint(snapctl_counted(&s, "refused"), ==, 1);
    vm_save(s.vm, "pending");
    snapctl_qmp(&s, "cont");
    snapctl_expect(&s, SNAPCTL_STATUS_LOADED, SNAPCTL_ERROR_NONE);
    g_assert_cmpuint(qtest_readl(s.vm->qts, PLACE), ==, 1);

    vm_load(s.vm, "pending");
    qtest_qmp_assert_success(s.vm->qts, "{'execute': 'query-status'}");
    g_assert_cmpuint(snapctl_get(&s, SNAPCTL_STATUS), ==,
                     SNAPCTL_STATUS_LOADED);
    g_assert_cmpuint(qtest_readl(s.vm->qts, PLACE), ==, 2);
    g_assert_cmpuint(snapctl_counted(&s, "loads"), ==, 1);

    snapctl_qmp(&s, "stop");
    snapctl_command(&s, 0, SNAPCTL_COMMAND_LOAD);
    vm_load(s.vm, "pending");
    snapctl_qmp(&s, "cont");
    qtest_qmp_assert_success(s.vm->qts, "{'execute': 'query-status'}");
    g_assert_cmpuint(qtest_readl(s.vm->qts, PLACE), ==, 2);
    g_assert_cmpuint(snapctl_counted(&s, "loads"), ==, 1);
    snapctl_end(&s);
}

/* The MSI message goes to RAM, where the test can read it */
static void test_interrupt(void)
{
    Snapctl s = snapctl_start(BOTH);
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

    snapctl_save(&s, 0);
    g_assert_cmphex(qtest_readl(s.vm->qts, PLACE), ==, 0);
    snapctl_load(&s, 0);
    g_assert_cmphex(qtest_readl(s.vm->qts, PLACE), ==, MSI_DATA);

    /* only when the guest resumes, and once */
    snapctl_qmp(&s, "stop");
    vm_load(s.vm, "a");
    g_assert_cmphex(qtest_readl(s.vm->qts, PLACE), ==, 0);
    snapctl_qmp(&s, "cont");
    g_assert_cmphex(qtest_readl(s.vm->qts, PLACE), ==, MSI_DATA);
    qtest_writel(s.vm->qts, PLACE, 0);
    snapctl_qmp(&s, "stop");
    snapctl_qmp(&s, "cont");
    g_assert_cmphex(qtest_readl(s.vm->qts, PLACE), ==, 0);
    snapctl_end(&s);
}

/* A snapshot that has more devices than this QEMU */
static void test_failed_load(void)
{
    Snapctl s = snapctl_start(BOTH " -device e1000,romfile=");
    g_autoptr(QDict) answer = NULL;
    const char *error;

    vm_save(s.vm, "b");
    snapctl_detach(&s);
    vm_stop(s.vm);
    vm_run(s.vm, MEM_ANON, SIZE, BOTH);
    snapctl_attach(&s);
    qtest_writel(s.vm->qts, PLACE, 1);
    snapctl_save(&s, 0);
    snapctl_expect_event(&s, "save", 0, "a", NULL);
    snapctl_command(&s, 1, SNAPCTL_COMMAND_LOAD);
    /* QEMU 10.0 reports the unknown section on stderr only */
    snapctl_expect_event(&s, "load", 1, "b",
                         "^Error -22 while loading VM state$|"
                         "^Unknown section or instance '.*/e1000' ");
    snapctl_expect_run_state(&s, "restore-vm");
    g_assert_cmpuint(snapctl_counted(&s, "failures"), ==, 1);

    /* a half-loaded guest must not be migrated */
    answer = qtest_qmp(s.vm->qts, "{'execute': 'migrate', "
                       "'arguments': {'uri': 'exec:cat >/dev/null'}}");
    error = qdict_get_str(qdict_get_qdict(answer, "error"), "desc");
    g_assert_nonnull(strstr(error, "has a partial load of snapshot 'b'"));

    /* a load of a good snapshot repairs the guest */
    vm_load(s.vm, "a");
    snapctl_qmp(&s, "cont");
    snapctl_expect(&s, SNAPCTL_STATUS_LOADED, SNAPCTL_ERROR_NONE);
    g_assert_cmpuint(qtest_readl(s.vm->qts, PLACE), ==, 1);
    snapctl_load(&s, 0);
    snapctl_end(&s);
}

static void add_disk_only_snapshot(Snapctl *s, const char *tag)
{
    const char *argv[] = { getenv("QTEST_QEMU_IMG"), "snapshot", "-c", tag,
                           s->vm->disk, NULL };

    g_assert_true(g_spawn_sync(NULL, (char **)argv, NULL, 0, NULL, NULL, NULL,
                               NULL, NULL, NULL));
}

/* The failure has changed nothing: the guest resumes */
static void test_failure_before_a_change(void)
{
    Snapctl s = snapctl_start(BOTH);

    snapctl_detach(&s);
    vm_stop(s.vm);
    add_disk_only_snapshot(&s, "b");
    vm_run(s.vm, MEM_ANON, SIZE, BOTH);
    snapctl_attach(&s);
    qtest_writel(s.vm->qts, PLACE, 1);
    snapctl_command(&s, 1, SNAPCTL_COMMAND_LOAD);
    snapctl_expect_event(&s, "load", 1, "b", "disk-only");
    snapctl_expect(&s, SNAPCTL_STATUS_FAILED, SNAPCTL_ERROR_HOST);
    snapctl_expect_run_state(&s, "running");
    g_assert_cmpuint(qtest_readl(s.vm->qts, PLACE), ==, 1);
    g_assert_cmpuint(snapctl_get64(&s, SNAPCTL_GENERATION), ==, 0);
    snapctl_end(&s);
}

static void test_failed_save(void)
{
    Snapctl s = snapctl_start(BOTH " -drive if=none,id=d1,driver=null-co,"
                              "read-zeroes=on");

    for (uint64_t i = 1; i < 3; i++) {
        snapctl_command(&s, 0, SNAPCTL_COMMAND_SAVE);
        snapctl_expect(&s, SNAPCTL_STATUS_FAILED, SNAPCTL_ERROR_HOST);
        snapctl_expect_event(&s, "save", 0, "a", "d1");
        snapctl_expect_run_state(&s, "running");
        g_assert_cmpuint(snapctl_counted(&s, "failures"), ==, i);
    }
    snapctl_end(&s);
}

static void test_no_disk(void)
{
    Snapctl s = snapctl_start(BOTH);
    g_autofree char *hmp = NULL;

    hmp = qtest_hmp(s.vm->qts, "drive_del d0");
    g_assert_cmpstr(hmp, ==, "");
    snapctl_command(&s, 0, SNAPCTL_COMMAND_LOAD);
    snapctl_expect(&s, SNAPCTL_STATUS_REFUSED, SNAPCTL_ERROR_EMPTY);
    snapctl_command(&s, 0, SNAPCTL_COMMAND_SAVE);
    snapctl_expect(&s, SNAPCTL_STATUS_FAILED, SNAPCTL_ERROR_HOST);
    snapctl_expect_run_state(&s, "running");
    snapctl_end(&s);
}

/* savevm leaked 60 to 100 KiB each time */
static void test_memory_of_saves(void)
{
    Snapctl s = snapctl_start(BOTH);
    uint64_t before = 0;

    for (int i = 0; i < 300; i++) {
        if (i == 100) {
            before = vm_status_kib(s.vm, "RssAnon");
        }
        snapctl_save(&s, 0);
    }
    g_assert_cmpuint(vm_status_kib(s.vm, "RssAnon"), <, before + 200 * 20);
    snapctl_end(&s);
}

static void test_unplug(void)
{
    Snapctl s = { .vm = vm_start(MEM_ANON, SIZE, "") };

    for (int i = 0; i < 2; i++) {
        qtest_qmp_assert_success(s.vm->qts, "{'execute': 'device_add', "
            "'arguments': {'driver': 'snapctl', 'id': 'snap0', "
            "'allow': 'both', 'slots': 'a', 'addr': '0x5'}}");
        snapctl_attach(&s);
        snapctl_save(&s, 0);
        snapctl_load(&s, 0);
        snapctl_qmp(&s, "stop");
        snapctl_command(&s, 0, SNAPCTL_COMMAND_LOAD);   /* never completed */
        qpci_unplug_acpi_device_test(s.vm->qts, "snap0", 5);
        snapctl_qmp(&s, "cont");
        snapctl_detach(&s);
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
            if (g_test_rand_bit()) {
                reg = SNAPCTL_SLOT + 4 * g_test_rand_bit();
            }
            snapctl_set(s, reg, value);
        } else if (g_test_rand_bit()) {
            qpci_io_writeq(s->pci, s->regs, reg, g_test_rand_int());
        } else {
            snapctl_get(s, reg);
        }
    }
    g_timer_destroy(timer);
}

static void test_hammer(void)
{
    Snapctl s = snapctl_start("-object ram-reset-auto,id=rr0,rewind=on " BOTH);

    snapctl_save(&s, 0);
    hammer_for(&s, 3);
    snapctl_settled_status(&s);
    g_assert_cmpuint(snapctl_counted(&s, "loads"), >, 0);
    g_assert_cmpuint(snapctl_counted(&s, "saves"), >, 1);
    g_assert_cmpuint(snapctl_counted(&s, "refused"), >, 0);
    g_assert_cmpuint(snapctl_counted(&s, "failures"), ==, 0);
    g_assert_cmpuint(snapctl_get64(&s, SNAPCTL_GENERATION), ==,
                     snapctl_counted(&s, "loads"));
    snapctl_load(&s, 0);
    snapctl_end(&s);
}

void add_snapctl_save_and_load_tests(void)
{
    qtest_add_data_func("snapctl/save-and-load/whole", NULL,
                        test_save_and_load);
    qtest_add_data_func("snapctl/save-and-load/rewind", "on",
                        test_save_and_load);
    qtest_add_func("snapctl/loads-by-others", test_loads_by_others);
    qtest_add_func("snapctl/stopped", test_stopped);
    qtest_add_func("snapctl/interrupt", test_interrupt);
    qtest_add_func("snapctl/failed-load", test_failed_load);
    qtest_add_func("snapctl/failed-save", test_failed_save);
    qtest_add_func("snapctl/failure-before-a-change",
                   test_failure_before_a_change);
    qtest_add_func("snapctl/no-disk", test_no_disk);
    qtest_add_func("snapctl/memory-of-saves", test_memory_of_saves);
    if (the_machine()->is_pc) {
        /* by registers of the machine pc */
        qtest_add_func("snapctl/unplug", test_unplug);
    }
    qtest_add_func("snapctl/hammer", test_hammer);
}
