/*
 * RAM reset tests: a machine to load snapshots in
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <sys/prctl.h>
#include "qemu/units.h"
#include "qobject/qdict.h"
#include "qobject/qlist.h"
#include "framework.h"

#define PAGE (4 * KiB)

static bool small_pages;

const Machine *the_machine(void)
{
    static const Machine pc = {
        "-M pc", 0, 4 * GiB, "pc.ram", 640 * KiB, 0, true,
    };
    static const Machine virt = {
        /* a reset writes the device tree, for which 1 MiB is reserved */
        "-M virt -cpu cortex-a57", GiB, 2 * GiB, "mach-virt.ram", 0,
        MiB / PAGE, false,
    };

    static const Machine versatile = {
        "-M versatilepb -cpu arm926", 0, 0, "versatile.ram", 0, 0, false,
    };

    return small_pages ? &versatile :
           strcmp(qtest_get_arch(), "aarch64") ? &pc : &virt;
}

void use_small_pages(bool on)
{
    small_pages = on;
}

char *temp_name(const char *suffix)
{
    static unsigned count;

    return g_strdup_printf("%s/ram-reset-test-%d-%u.%s", g_get_tmp_dir(),
                           getpid(), count++, suffix);
}

/* Bytes that the guest never had, and must never see */
static char *make_ram_file(uint64_t size)
{
    char *name = temp_name("ram");
    g_autofree char *junk = g_malloc(size);

    memset(junk, 0xee, size);
    g_assert_true(g_file_set_contents(name, junk, size, NULL));
    return name;
}

static char *backend(const Vm *vm, MemKind kind)
{
    switch (kind) {
    case MEM_ANON:
    case MEM_THP:
        return g_strdup("memory-backend-ram");
    case MEM_MEMFD:
        return g_strdup("memory-backend-memfd,share=on");
    case MEM_HUGETLB:
        return g_strdup("memory-backend-memfd,share=on,hugetlb=on,"
                        "hugetlbsize=2M");
    case MEM_HUGETLB_PRIVATE:
        return g_strdup("memory-backend-memfd,share=off,hugetlb=on,"
                        "hugetlbsize=2M");
    case MEM_HUGETLB_FILE:
        return g_strdup_printf("memory-backend-file,share=on,mem-path=%s",
                               vm->ram_file);
    case MEM_FILE:
        return g_strdup_printf("memory-backend-file,share=off,mem-path=%s",
                               vm->ram_file);
    default:
        g_assert_not_reached();
    }
}

static char *no_firmware;

static void remove_no_firmware(void)
{
    unlink(no_firmware);
}

static char *firmware_args(void)
{
    const char *dir = getenv("RAM_RESET_FIRMWARE");

    /* The machine virt has memory hotplug only with a firmware; any will do */
    if (!the_machine()->is_pc) {
        if (!no_firmware) {
            no_firmware = temp_name("bios");
            g_assert_true(g_file_set_contents(no_firmware, "none", -1, NULL));
            atexit(remove_no_firmware);
        }
        return g_strdup_printf("-bios %s", no_firmware);
    }
    return dir ? g_strdup_printf("-L %s", dir) : g_strdup("");
}

void vm_run(Vm *vm, MemKind kind, uint64_t size, const char *extra)
{
    g_autofree char *mem = backend(vm, kind);
    g_autofree char *firmware = firmware_args();
    g_autofree char *text = NULL;
    g_autofree char *proc = NULL;
    const char *hva;

    vm->size = size;
    /* Inherited by QEMU, which itself always asks for hugepages */
    prctl(PR_SET_THP_DISABLE, kind != MEM_THP, 0, 0, 0);
    vm->qts = qtest_initf("%s %s -nodefaults -m %" PRIu64 "k "
                          "-object %s,id=ram,size=%" PRIu64 "k%s "
                          "-machine memory-backend=ram "
                          "-drive if=none,id=d0,format=qcow2,file=%s %s",
                          the_machine()->args, firmware, size / KiB, mem,
                          size / KiB, vm->ram_props ?: "", vm->disk, extra);
    prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);

    text = qtest_hmp(vm->qts, "gpa2hva 0x%" PRIx64, the_machine()->ram);
    hva = strstr(text, " is 0x");
    g_assert_nonnull(hva);
    vm->hva = g_ascii_strtoull(hva + strlen(" is "), NULL, 0);
    proc = g_strdup_printf("/proc/%d/mem", qtest_pid(vm->qts));
    vm->mem = open(proc, O_RDONLY);
    g_assert_cmpint(vm->mem, >=, 0);
}

Vm *vm_start(MemKind kind, uint64_t size, const char *extra)
{
    Vm *vm = g_new0(Vm, 1);

    vm->disk = temp_name("qcow2");
    g_assert_true(mkimg(vm->disk, "qcow2", 64));
    if (kind == MEM_FILE) {
        vm->ram_file = make_ram_file(size);
    }
    if (kind == MEM_HUGETLB_FILE) {
        vm->ram_file = g_strdup_printf("%s/ram", mem_huge_dir());
    }
    vm_run(vm, kind, size, extra);
    return vm;
}

void vm_stop(Vm *vm)
{
    close(vm->mem);
    qtest_quit(vm->qts);
}

static void G_GNUC_PRINTF(1, 2) qemu_img(const char *fmt, ...)
{
    g_autofree char *args = NULL, *line = NULL, *out = NULL, *err = NULL;
    int status;
    va_list ap;

    va_start(ap, fmt);
    args = g_strdup_vprintf(fmt, ap);
    va_end(ap);
    line = g_strdup_printf("%s %s", getenv("QTEST_QEMU_IMG"), args);
    g_assert_true(g_spawn_command_line_sync(line, &out, &err, &status, NULL));
    g_assert_cmpstr(err, ==, "");
    g_assert_cmpint(status, ==, 0);
}

void disk_write(Vm *vm, uint8_t byte)
{
    qemu_img("bench -w -f qcow2 -c 1 -d 1 -s 64k --pattern=%u %s", byte,
             vm->disk);
}

uint8_t disk_read(Vm *vm)
{
    g_autofree char *raw = temp_name("raw");
    g_autofree char *content = NULL;

    qemu_img("convert -f qcow2 -O raw %s %s", vm->disk, raw);
    g_assert_true(g_file_get_contents(raw, &content, NULL, NULL));
    unlink(raw);
    g_assert_cmpint(memcmp(content, content + 1, 64 * KiB - 1), ==, 0);
    return content[0];
}

void vm_end(Vm *vm)
{
    vm_stop(vm);
    unlink(vm->disk);
    g_free(vm->disk);
    if (vm->ram_file) {
        unlink(vm->ram_file);
        g_free(vm->ram_file);
    }
    g_free(vm);
}

void vm_hmp_ok(Vm *vm, const char *fmt, ...)
{
    g_autofree char *text = NULL;
    va_list ap;

    va_start(ap, fmt);
    text = qtest_vhmp(vm->qts, fmt, ap);
    va_end(ap);
    g_assert_cmpstr(text, ==, "");
}

void vm_save(Vm *vm, const char *tag)
{
    vm_hmp_ok(vm, "savevm %s", tag);
}

void vm_load(Vm *vm, const char *tag)
{
    vm_hmp_ok(vm, "loadvm %s", tag);
}

void vm_load_says(Vm *vm, const char *tag, const char *message)
{
    g_autofree char *text = qtest_hmp(vm->qts, "loadvm %s", tag);

    if (!strstr(text, message)) {
        g_test_message("loadvm said: %s", text);
    }
    g_assert_nonnull(strstr(text, message));
}

QDict *vm_query(Vm *vm)
{
    return qtest_qmp_assert_success_ref(vm->qts,
                                        "{'execute': 'query-ram-reset'}");
}

uint64_t vm_counter(Vm *vm, const char *name)
{
    g_autoptr(QDict) info = vm_query(vm);

    return qdict_get_int(info, name);
}

void vm_set_capability(Vm *vm, const char *name, bool on)
{
    qtest_qmp_assert_success(vm->qts,
        "{'execute': 'migrate-set-capabilities', 'arguments': {"
        " 'capabilities': [{'capability': %s, 'state': %i}]}}", name, on);
}

QDict *vm_query_block(Vm *vm, const char *name)
{
    g_autoptr(QDict) info = vm_query(vm);
    QList *blocks = qdict_get_qlist(qdict_get_qdict(info, "last-load"),
                                    "blocks");
    QListEntry *e;

    QLIST_FOREACH_ENTRY(blocks, e) {
        QDict *block = qobject_to(QDict, qlist_entry_obj(e));

        if (!strcmp(qdict_get_str(block, "name"), name)) {
            return qobject_ref(block);
        }
    }
    return NULL;
}

unsigned rounds(unsigned full, unsigned few)
{
    return g_strcmp0(getenv("RAM_RESET_ALL"), "1") ? few : full;
}

void assert_no_start(const char *args, const char *object,
                     const char *message)
{
    g_autofree char *firmware = firmware_args();
    g_autofree char *line = NULL;
    g_autofree char *err = NULL;
    int status;

    line = g_strdup_printf("%s -accel qtest %s -nodefaults -display none "
                           "%s %s", getenv("QTEST_QEMU_BINARY"),
                           the_machine()->args, firmware, args);
    g_assert_true(g_spawn_command_line_sync(line, NULL, &err, &status, NULL));
    if (!strstr(err, object) || !strstr(err, message)) {
        g_test_message("QEMU said: %s", err);
    }
    g_assert_true(WIFEXITED(status));
    g_assert_cmpint(WEXITSTATUS(status), ==, 1);
    g_assert_nonnull(strstr(err, object));
    g_assert_nonnull(strstr(err, message));
}

void add_per_strategy(const char *path, void (*func)(const void *strategy))
{
    static const char *const strategies[] = {
        "memset", "madvise", "remap", "auto",
    };

    /* The first and the last, which chooses among all, are in ./test */
    for (unsigned i = 0; i < G_N_ELEMENTS(strategies); i += rounds(1, 3)) {
        g_autofree char *full = g_strdup_printf("ram-reset/%s/%s", path,
                                                strategies[i]);

        qtest_add_data_func(full, strategies[i], func);
    }
}
