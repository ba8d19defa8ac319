/*
 * RAM reset tests: values of /proc and /sys
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <sys/ioctl.h>
#include "framework.h"

uint64_t hugepages(const char *what)
{
    g_autofree char *name = g_strdup_printf("/sys/kernel/mm/hugepages/"
                                            "hugepages-2048kB/%s_hugepages",
                                            what);
    g_autofree char *text = NULL;

    if (!g_file_get_contents(name, &text, NULL, NULL)) {
        return 0;
    }
    return g_ascii_strtoull(text, NULL, 10);
}

/* The number behind "@field:" in @text, which must have it */
static uint64_t kib_field(const char *text, const char *field)
{
    g_autofree char *key = g_strdup_printf("\n%s:", field);
    const char *at = strstr(text, key);

    g_assert_nonnull(at);
    return g_ascii_strtoull(at + strlen(key), NULL, 10);
}

uint64_t vm_status_kib(Vm *vm, const char *field)
{
    g_autofree char *name = g_strdup_printf("/proc/%d/status",
                                            qtest_pid(vm->qts));
    g_autofree char *text = NULL;

    g_assert_true(g_file_get_contents(name, &text, NULL, NULL));
    return kib_field(text, field);
}

uint64_t vm_resident_kib(Vm *vm)
{
    return vm_status_kib(vm, "RssAnon") + vm_status_kib(vm, "RssShmem");
}

/* The text of /proc/PID/@file behind RAM's address and @separator */
static char *ram_entry(Vm *vm, const char *file, char separator)
{
    g_autofree char *name = g_strdup_printf("/proc/%d/%s", qtest_pid(vm->qts),
                                            file);
    g_autofree char *start = g_strdup_printf("\n%" PRIx64 "%c", vm->hva,
                                             separator);
    g_autofree char *text = NULL;
    const char *entry;

    g_assert_true(g_file_get_contents(name, &text, NULL, NULL));
    entry = strstr(text, start);
    g_assert_nonnull(entry);
    return g_strdup(entry + strlen(start));
}

uint64_t vm_smaps_kib(Vm *vm, const char *field)
{
    g_autofree char *entry = ram_entry(vm, "smaps", '-');

    return kib_field(entry, field);
}

uint64_t vm_ram_kib(Vm *vm)
{
    return vm_smaps_kib(vm, "Rss") + vm_smaps_kib(vm, "Shared_Hugetlb") +
           vm_smaps_kib(vm, "Private_Hugetlb");
}

char *vm_smaps_flags(Vm *vm)
{
    g_autofree char *entry = ram_entry(vm, "smaps", '-');
    char *flags = strstr(entry, "\nVmFlags: ");

    g_assert_nonnull(flags);
    flags += strlen("\nVmFlags: ");
    return g_strndup(flags, strcspn(flags, "\n"));
}

unsigned vm_mappings(Vm *vm)
{
    g_autofree char *name = g_strdup_printf("/proc/%d/maps",
                                            qtest_pid(vm->qts));
    g_autofree char *text = NULL;
    unsigned lines = 0;

    g_assert_true(g_file_get_contents(name, &text, NULL, NULL));
    for (const char *p = text; *p; p++) {
        lines += *p == '\n';
    }
    return lines;
}

unsigned vm_fds(Vm *vm)
{
    g_autofree char *name = g_strdup_printf("/proc/%d/fd", qtest_pid(vm->qts));
    g_autoptr(GDir) dir = g_dir_open(name, 0, NULL);
    unsigned fds = 0;

    g_assert_nonnull(dir);
    while (g_dir_read_name(dir)) {
        fds++;
    }
    return fds;
}

bool can_scan_page_tables(void)
{
    uint64_t arg[12] = { sizeof(arg) };
    int fd = open("/proc/self/pagemap", O_RDONLY);
    bool can;

    g_assert_cmpint(fd, >=, 0);
    /* An empty range */
    can = ioctl(fd, _IOWR('f', 16, arg), arg) == 0 || errno != ENOTTY;
    close(fd);
    return can;
}

char *vm_numa_policy(Vm *vm)
{
    g_autofree char *entry = ram_entry(vm, "numa_maps", ' ');

    return g_strndup(entry, strcspn(entry, "\n "));
}
