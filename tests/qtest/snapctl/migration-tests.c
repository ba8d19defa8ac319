/*
 * snapctl: migrations that fail, and to a device that allows less
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "snapctl.h"

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

/* Migrate with a pending command; @args are for the destination */
static void migrate(Snapctl *s, const char *args)
{
    g_autofree char *file = g_strdup_printf("%s/snapctl-migration.%d",
                                            g_get_tmp_dir(), getpid());
    g_autofree char *uri = g_strdup_printf("file:%s", file);
    g_autofree char *incoming = g_strdup_printf("%s -incoming %s", args, uri);

    snapctl_qmp(s, "stop");
    snapctl_command(s, 1, SNAPCTL_COMMAND_LOAD);
    qtest_qmp_assert_success(s->vm->qts, "{'execute': 'migrate', "
                             "'arguments': {'uri': %s}}", uri);
    wait_for_migration(s->vm->qts);
    g_assert_cmpuint(snapctl_get(s, SNAPCTL_STATUS), ==,
                     SNAPCTL_STATUS_PENDING);
    snapctl_detach(s);
    vm_stop(s->vm);

    vm_run(s->vm, MEM_ANON, SIZE, incoming);
    wait_for_migration(s->vm->qts);
    unlink(file);
    snapctl_attach(s);
    g_assert_cmpuint(snapctl_get(s, SNAPCTL_STATUS), ==,
                     SNAPCTL_STATUS_PENDING);
}

/* The guest resumes there with the same generation, and with the command */
static void test_migration(void)
{
    const char *args = REGION BOTH ",memdev=region";
    uint8_t random[2][SNAPCTL_RANDOM_SIZE];
    Snapctl s = snapctl_start(args);
    QPCIBar region = qpci_iomap(s.pci, SNAPCTL_REGION_BAR, NULL);
    uint64_t load_ns;

    qtest_writel(s.vm->qts, PLACE, 1);
    snapctl_save(&s, 1);
    snapctl_load(&s, 1);
    snapctl_load(&s, 1);
    snapctl_get_random(&s, random[0]);
    load_ns = snapctl_get64(&s, SNAPCTL_LOAD_NS);
    qpci_io_writel(s.pci, region, 0, 4711);
    qtest_writel(s.vm->qts, PLACE, 2);

    migrate(&s, args);
    g_assert_cmpuint(snapctl_get64(&s, SNAPCTL_GENERATION), ==, 2);
    g_assert_cmpuint(snapctl_get64(&s, SNAPCTL_LOAD_NS), ==, load_ns);
    snapctl_get_random(&s, random[1]);
    g_assert_cmpmem(random[0], sizeof(random[0]), random[1],
                    sizeof(random[0]));
    region = qpci_iomap(s.pci, SNAPCTL_REGION_BAR, NULL);
    g_assert_cmpuint(qpci_io_readl(s.pci, region, 0), ==, 0);
    g_assert_cmpuint(qtest_readl(s.vm->qts, PLACE), ==, 2);
    snapctl_qmp(&s, "cont");
    snapctl_expect(&s, SNAPCTL_STATUS_LOADED, SNAPCTL_ERROR_NONE);
    g_assert_cmpuint(qtest_readl(s.vm->qts, PLACE), ==, 1);
    g_assert_cmpuint(snapctl_get64(&s, SNAPCTL_GENERATION), ==, 3);
    snapctl_end(&s);
}

/* The destination refuses a command that only the source would accept */
static void test_migration_to_less(const void *args)
{
    Snapctl s = snapctl_start(BOTH);

    snapctl_save(&s, 1);
    qtest_writel(s.vm->qts, PLACE, 2);
    migrate(&s, args);
    snapctl_qmp(&s, "cont");
    snapctl_expect(&s, SNAPCTL_STATUS_REFUSED, strstr(args, "none") ?
                   SNAPCTL_ERROR_DENIED : SNAPCTL_ERROR_SLOT);
    snapctl_expect_run_state(&s, "running");
    g_assert_cmpuint(qtest_readl(s.vm->qts, PLACE), ==, 2);
    snapctl_end(&s);
}

/* The next load does not count as failed */
static void test_failed_migration(void)
{
    Snapctl s = snapctl_start(BOTH);

    qtest_writel(s.vm->qts, PLACE, 1);
    snapctl_save(&s, 0);
    for (int i = 0; i < 3; i++) {
        qtest_writel(s.vm->qts, PLACE, 2);
        qtest_qmp_assert_success(s.vm->qts, "{'execute': 'migrate', "
                                 "'arguments': {'uri': 'exec:false'}}");
        do {
            snapctl_command(&s, 0, SNAPCTL_COMMAND_LOAD);
        } while (snapctl_settled_status(&s) == SNAPCTL_STATUS_REFUSED);
        snapctl_expect(&s, SNAPCTL_STATUS_LOADED, SNAPCTL_ERROR_NONE);
        snapctl_expect_run_state(&s, "running");
        g_assert_cmpuint(qtest_readl(s.vm->qts, PLACE), ==, 1);
    }
    snapctl_end(&s);
}

/* A load must not replace a guest during its migration */
static void test_busy(void)
{
    Snapctl s = snapctl_start(BOTH);

    vm_fill(s.vm, PLACE - the_machine()->ram, 8 * MiB, 0x5a);
    snapctl_save(&s, 0);
    qtest_qmp_assert_success(s.vm->qts,
        "{'execute': 'migrate-set-parameters', "
        "'arguments': {'max-bandwidth': 4096}}");
    qtest_qmp_assert_success(s.vm->qts, "{'execute': 'migrate', "
                             "'arguments': {'uri': 'exec:cat >/dev/null'}}");
    for (uint32_t c = SNAPCTL_COMMAND_SAVE; c <= SNAPCTL_COMMAND_LOAD; c++) {
        snapctl_command(&s, 0, c);
        snapctl_expect(&s, SNAPCTL_STATUS_REFUSED, SNAPCTL_ERROR_BUSY);
    }
    snapctl_qmp(&s, "migrate_cancel");
    do {
        snapctl_command(&s, 0, SNAPCTL_COMMAND_LOAD);
    } while (snapctl_settled_status(&s) == SNAPCTL_STATUS_REFUSED);
    snapctl_expect(&s, SNAPCTL_STATUS_LOADED, SNAPCTL_ERROR_NONE);
    snapctl_end(&s);
}

void add_snapctl_migration_tests(void)
{
    qtest_add_func("snapctl/migration", test_migration);
    qtest_add_data_func("snapctl/migration-to/allow-none",
                        "-device snapctl,id=snap0,allow=none,slots=a:b",
                        test_migration_to_less);
    qtest_add_data_func("snapctl/migration-to/fewer-slots",
                        "-device snapctl,id=snap0,allow=both,slots=a",
                        test_migration_to_less);
    qtest_add_func("snapctl/failed-migration", test_failed_migration);
    qtest_add_func("snapctl/busy", test_busy);
}
