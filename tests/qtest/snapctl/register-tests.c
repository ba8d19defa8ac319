/*
 * snapctl: registers, options and refusals
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "hw/pci/pci_ids.h"
#include "hw/pci/pci_regs.h"
#include "qobject/qlist.h"
#include "snapctl.h"

static void test_registers(const void *machine)
{
    g_autofree char *args = g_strdup_printf(
        "-M %s " REGION BOTH ":c,memdev=region,min-interval=7",
        (const char *)machine);
    Snapctl s = snapctl_start(args);
    uint64_t size;

    g_assert_cmpuint(qpci_config_readw(s.pci, PCI_CLASS_DEVICE), ==,
                     PCI_CLASS_SYSTEM_OTHER);
    g_assert_cmpuint(snapctl_get(&s, SNAPCTL_MAGIC), ==, SNAPCTL_MAGIC_VALUE);
    g_assert_cmpuint(snapctl_get(&s, SNAPCTL_VERSION), ==,
                     SNAPCTL_VERSION_VALUE);
    g_assert_cmpuint(snapctl_get(&s, SNAPCTL_FEATURES), ==,
                     SNAPCTL_FEATURE_SAVE | SNAPCTL_FEATURE_LOAD |
                     SNAPCTL_FEATURE_REGION | SNAPCTL_FEATURE_MSIX);
    g_assert_cmpuint(snapctl_get(&s, SNAPCTL_SLOTS), ==, 3);
    g_assert_cmpuint(snapctl_get(&s, SNAPCTL_MIN_INTERVAL), ==, 7);
    qpci_iomap(s.pci, SNAPCTL_REGION_BAR, &size);
    g_assert_cmpuint(size, ==, REGION_SIZE);

    /* read-only and write-only registers */
    for (uint64_t reg = 0; reg < SNAPCTL_REGS_SIZE; reg += 4) {
        if (reg != SNAPCTL_SLOT && reg != SNAPCTL_COMMAND) {
            uint32_t value = snapctl_get(&s, reg);

            snapctl_set(&s, reg, ~value);
            g_assert_cmpuint(snapctl_get(&s, reg), ==, value);
            g_assert_true(reg <= SNAPCTL_MIN_INTERVAL || !value);
        }
    }
    snapctl_set(&s, SNAPCTL_SLOT, 0xfedcba98);
    g_assert_cmpuint(snapctl_get(&s, SNAPCTL_SLOT), ==, 0xfedcba98);
    g_assert_cmpuint(snapctl_get(&s, SNAPCTL_COMMAND), ==, 0);

    /* an access of 8 bytes has two registers, other sizes have no effect */
    g_assert_cmphex(snapctl_get64(&s, SNAPCTL_MAGIC), ==,
                    (uint64_t)SNAPCTL_VERSION_VALUE << 32 |
                    SNAPCTL_MAGIC_VALUE);
    qpci_io_writeb(s.pci, s.regs, SNAPCTL_SLOT, 1);
    qpci_io_writew(s.pci, s.regs, SNAPCTL_SLOT, 1);
    g_assert_cmpuint(snapctl_get(&s, SNAPCTL_SLOT), ==, 0xfedcba98);
    g_assert_cmpuint(qpci_io_readb(s.pci, s.regs, SNAPCTL_MAGIC), !=, 'S');
    qpci_io_writeq(s.pci, s.regs, SNAPCTL_SLOT,
                   (uint64_t)SNAPCTL_COMMAND_SAVE << 32 | 2);
    snapctl_expect(&s, SNAPCTL_STATUS_SAVED, SNAPCTL_ERROR_NONE);
    snapctl_expect_event(&s, "save", 2, "c", NULL);
    snapctl_end(&s);
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
        Snapctl s = snapctl_start(args);

        g_assert_cmpuint(snapctl_get(&s, SNAPCTL_FEATURES), ==,
                         cases[i].features | SNAPCTL_FEATURE_MSIX);
        vm_save(s.vm, "a");
        for (uint32_t c = SNAPCTL_COMMAND_SAVE; c <= SNAPCTL_COMMAND_LOAD;
             c++) {
            const char *counts[] = { NULL, "saves", "loads" };
            bool allowed = cases[i].features & (1 << (c - 1));

            snapctl_command(&s, 0, c);
            if (allowed) {
                g_assert_cmpuint(snapctl_settled_status(&s), !=,
                                 SNAPCTL_STATUS_REFUSED);
            } else {
                g_assert_cmpuint(snapctl_get(&s, SNAPCTL_STATUS), ==,
                                 SNAPCTL_STATUS_REFUSED);
                g_assert_cmpuint(snapctl_get(&s, SNAPCTL_ERROR), ==,
                                 SNAPCTL_ERROR_DENIED);
            }
            g_assert_cmpuint(snapctl_counted(&s, counts[c]), ==, allowed);
        }
        snapctl_end(&s);
    }
}

static void test_refusals(void)
{
    Snapctl s = snapctl_start(BOTH);

    snapctl_command(&s, 0, 0);
    snapctl_expect(&s, SNAPCTL_STATUS_REFUSED, SNAPCTL_ERROR_COMMAND);
    snapctl_command(&s, 0, 3);
    snapctl_expect(&s, SNAPCTL_STATUS_REFUSED, SNAPCTL_ERROR_COMMAND);
    snapctl_command(&s, 2, SNAPCTL_COMMAND_SAVE);
    snapctl_expect(&s, SNAPCTL_STATUS_REFUSED, SNAPCTL_ERROR_SLOT);
    snapctl_command(&s, UINT32_MAX, SNAPCTL_COMMAND_LOAD);
    snapctl_expect(&s, SNAPCTL_STATUS_REFUSED, SNAPCTL_ERROR_SLOT);
    snapctl_command(&s, 1, SNAPCTL_COMMAND_LOAD);
    snapctl_expect(&s, SNAPCTL_STATUS_REFUSED, SNAPCTL_ERROR_EMPTY);
    g_assert_cmpuint(snapctl_counted(&s, "refused"), ==, 5);
    g_assert_cmpuint(snapctl_counted(&s, "failures"), ==, 0);
    g_assert_cmpuint(snapctl_get64(&s, SNAPCTL_GENERATION), ==, 0);

    /* a reset clears the register; the guest has been running all the time */
    snapctl_qmp(&s, "system_reset");
    qtest_qmp_eventwait(s.vm->qts, "RESET");
    qpci_device_enable(s.pci);
    s.regs = qpci_iomap(s.pci, SNAPCTL_REGS_BAR, NULL);
    g_assert_cmpuint(snapctl_get(&s, SNAPCTL_STATUS), ==, SNAPCTL_STATUS_IDLE);
    g_assert_cmpuint(snapctl_get(&s, SNAPCTL_ERROR), ==, SNAPCTL_ERROR_NONE);
    g_assert_cmpuint(snapctl_get(&s, SNAPCTL_SLOT), ==, 0);
    snapctl_save(&s, 0);
    snapctl_end(&s);
}

static void test_min_interval(void)
{
    Snapctl s = snapctl_start(BOTH ",min-interval=700");
    int64_t begin;

    snapctl_command(&s, 5, SNAPCTL_COMMAND_SAVE);
    snapctl_expect(&s, SNAPCTL_STATUS_REFUSED, SNAPCTL_ERROR_SLOT);
    snapctl_save(&s, 0);                /* a refused command does not count */
    begin = g_get_monotonic_time();
    for (int i = 0; i < 3; i++) {
        snapctl_command(&s, 0, SNAPCTL_COMMAND_LOAD);
        while (snapctl_get(&s, SNAPCTL_STATUS) == SNAPCTL_STATUS_REFUSED) {
            g_assert_cmpuint(snapctl_get(&s, SNAPCTL_ERROR), ==,
                             SNAPCTL_ERROR_TOO_SOON);
            g_usleep(5000);
            snapctl_command(&s, 0, SNAPCTL_COMMAND_LOAD);
        }
        snapctl_expect(&s, SNAPCTL_STATUS_LOADED, SNAPCTL_ERROR_NONE);
    }
    /* a little less: the device's clock started before the test's */
    g_assert_cmpint(g_get_monotonic_time() - begin, >=, 2050000);
    g_assert_cmpuint(snapctl_counted(&s, "loads"), ==, 3);
    snapctl_end(&s);
}

static void test_query(void)
{
    Snapctl s = snapctl_start(REGION "-device snapctl,id=snap0,allow=save,"
                              "slots=x.y,min-interval=3,memdev=region,"
                              "memory-limit=3M");
    g_autoptr(QDict) info = snapctl_query(&s);
    g_autofree char *hmp = NULL;

    g_assert_true(qdict_get_bool(info, "present"));
    g_assert_cmpstr(qdict_get_str(info, "qom-path"), ==,
                    "/machine/peripheral/snap0");
    g_assert_cmpstr(qdict_get_str(info, "allow"), ==, "save");
    g_assert_cmpstr(qdict_get_str(info, "save-kind"), ==, "image");
    g_assert_cmpint(qdict_get_int(info, "memory"), ==, 0);
    g_assert_cmpint(qdict_get_int(info, "memory-limit"), ==, 3 << 20);
    g_assert_cmpint(qdict_get_int(info, "min-interval"), ==, 3);
    g_assert_cmpint(qdict_get_int(info, "region-size"), ==, REGION_SIZE);
    g_assert_false(qdict_get_bool(info, "pending"));
    g_assert_false(qdict_haskey(info, "last"));
    snapctl_save(&s, 0);
    hmp = qtest_hmp(s.vm->qts, "info snapctl");
    g_assert_nonnull(strstr(hmp, "slot 0: snapshot 'x.y'"));
    g_assert_nonnull(strstr(hmp, "allow save"));
    g_assert_nonnull(strstr(hmp, "saves go to the image, limit 3072 KiB"));
    g_assert_nonnull(strstr(hmp, "1 save(s), 0 load(s)"));
    g_assert_nonnull(strstr(hmp, "last: save of slot 0, 'x.y'"));
    snapctl_end(&s);
}

static void test_no_device(void)
{
    Vm *vm = vm_start(MEM_ANON, SIZE, "");
    Snapctl s = { .vm = vm };
    g_autoptr(QDict) info = snapctl_query(&s);
    g_autofree char *hmp = qtest_hmp(vm->qts, "info snapctl");

    g_assert_false(qdict_get_bool(info, "present"));
    g_assert_cmpstr(qdict_get_str(info, "qom-path"), ==, "");
    g_assert_cmpstr(qdict_get_str(info, "allow"), ==, "none");
    g_assert_true(qlist_empty(qdict_get_qlist(info, "slots")));
    g_assert_cmpint(qdict_get_int(info, "loads"), ==, 0);
    g_assert_false(qdict_haskey(info, "region-size"));
    g_assert_false(qdict_haskey(info, "last"));
    g_assert_cmpstr(hmp, ==, "There is no snapctl device.\r\n");
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
    assert_no_start("-device snapctl,slots=a:17", "name '17' of slot 1",
                    "not a number");
    assert_no_start("-device snapctl,allow=all", "allow", "all");
    assert_no_start("-device snapctl,save-kind=template", "save-kind",
                    "template");
    assert_no_start("-device snapctl,memdev=nope", "nope", "not found");
    assert_no_start("-object memory-backend-ram,id=odd,size=12k "
                    "-device snapctl,memdev=odd", "memdev=odd",
                    "power of two");
    assert_no_start("-object memory-backend-ram,id=small,size=8 "
                    "-device snapctl,memdev=small", "memdev=small",
                    "4 KiB or more");
    assert_no_start("-object memory-backend-ram,id=main,size=128M "
                    "-machine memory-backend=main "
                    "-device snapctl,memdev=main", "memdev=main", "in use");
}

void add_snapctl_register_tests(void)
{
    if (the_machine()->is_pc) {
        qtest_add_data_func("snapctl/registers/pc", "pc", test_registers);
        qtest_add_data_func("snapctl/registers/q35", "q35", test_registers);
    } else {
        qtest_add_data_func("snapctl/registers/virt", "virt", test_registers);
    }
    qtest_add_func("snapctl/features", test_features);
    qtest_add_func("snapctl/refusals", test_refusals);
    qtest_add_func("snapctl/min-interval", test_min_interval);
    qtest_add_func("snapctl/query", test_query);
    qtest_add_func("snapctl/no-device", test_no_device);
    qtest_add_func("snapctl/bad-options", test_bad_options);
}
