/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * contrib/snapctl's library, with a device that is a folder and some functions:
 * they stand in for the accesses to registers.
 */

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <glib/gstdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "contrib/snapctl/mmio.h"
#include "contrib/snapctl/snapctl.h"
#include "wrap.h"

#define REGION  65536

/* The device's results of the next commands, in order */
static struct {
    uint32_t status;
    uint32_t error;
} script[8];
static unsigned next_step;
static unsigned commands;
static uint32_t last_command;
static uint32_t last_slot;
static unsigned pending_reads;      /* time until a command is done */
static unsigned pending_left;
/* GENERATION becomes this one while its lower half is being read */
static uint64_t torn;
static unsigned random_tears;

typedef struct {
    char *path;
    uint8_t *regs;
} Fixture;

static void put(Fixture *f, unsigned offset, uint32_t value)
{
    value = htole32(value);
    memcpy(f->regs + offset, &value, sizeof(value));
}

uint32_t __wrap_snapctl_mmio_read(const void *regs, unsigned offset)
{
    uint32_t value = __real_snapctl_mmio_read(regs, offset);

    if (offset == SNAPCTL_STATUS && pending_left) {
        pending_left--;
        return SNAPCTL_STATUS_PENDING;
    }
    if (offset == SNAPCTL_GENERATION + 4 && torn) {
        torn = htole64(torn);
        memcpy((char *)regs + SNAPCTL_GENERATION, &torn, sizeof(torn));
        torn = 0;
    }
    if (offset == SNAPCTL_RANDOM + 16 && random_tears) {
        random_tears--;
        memset((char *)regs + SNAPCTL_RANDOM, 0xab, SNAPCTL_RANDOM_SIZE);
        __real_snapctl_mmio_write((void *)regs, SNAPCTL_GENERATION,
            __real_snapctl_mmio_read(regs, SNAPCTL_GENERATION) + 1);
    }
    return value;
}

void __wrap_snapctl_mmio_write(void *regs, unsigned offset, uint32_t value)
{
    if (offset == SNAPCTL_SLOT) {
        last_slot = value;
        return;
    }
    g_assert_cmpuint(offset, ==, SNAPCTL_COMMAND);
    commands++;
    last_command = value;
    pending_left = pending_reads;
    __real_snapctl_mmio_write(regs, SNAPCTL_STATUS, script[next_step].status);
    __real_snapctl_mmio_write(regs, SNAPCTL_ERROR, script[next_step].error);
    if (script[next_step + 1].status) {
        next_step++;
    }
}

static void play(uint32_t status, uint32_t error)
{
    unsigned i = 0;

    while (script[i].status) {
        i++;
    }
    g_assert_cmpuint(i, <, G_N_ELEMENTS(script) - 1);
    script[i].status = status;
    script[i].error = error;
}

static void forget(void)
{
    memset(script, 0, sizeof(script));
    next_step = 0;
    commands = 0;
    pending_reads = 0;
    pending_left = 0;
}

static void make_file(const char *folder, const char *name, size_t size)
{
    g_autofree char *path = g_build_filename(folder, name, NULL);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);

    g_assert_cmpint(fd, >=, 0);
    g_assert_cmpint(ftruncate(fd, size), ==, 0);
    close(fd);
}

static void remove_file(const char *folder, const char *name)
{
    g_autofree char *path = g_build_filename(folder, name, NULL);

    g_unlink(path);
}

static void set_up(Fixture *f, G_GNUC_UNUSED const void *data)
{
    g_autofree char *regs = NULL;
    int fd;

    f->path = g_dir_make_tmp("snapctl-XXXXXX", NULL);
    g_assert_nonnull(f->path);
    make_file(f->path, "enable", 0);
    make_file(f->path, "resource0", SNAPCTL_REGS_SIZE);
    make_file(f->path, "resource2", REGION);
    regs = g_build_filename(f->path, "resource0", NULL);
    fd = open(regs, O_RDWR);
    f->regs = mmap(NULL, SNAPCTL_REGS_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED,
                   fd, 0);
    g_assert_true(f->regs != MAP_FAILED);
    close(fd);
    put(f, SNAPCTL_MAGIC, SNAPCTL_MAGIC_VALUE);
    put(f, SNAPCTL_VERSION, SNAPCTL_VERSION_VALUE);
    put(f, SNAPCTL_FEATURES, SNAPCTL_FEATURE_SAVE | SNAPCTL_FEATURE_LOAD |
                             SNAPCTL_FEATURE_REGION);
    put(f, SNAPCTL_SLOTS, 3);
    put(f, SNAPCTL_MIN_INTERVAL, 8);
    forget();
}

static void tear_down(Fixture *f, G_GNUC_UNUSED const void *data)
{
    munmap(f->regs, SNAPCTL_REGS_SIZE);
    remove_file(f->path, "enable");
    remove_file(f->path, "resource0");
    remove_file(f->path, "resource2");
    g_assert_cmpint(g_rmdir(f->path), ==, 0);
    g_free(f->path);
}

static struct snapctl *opened(Fixture *f)
{
    struct snapctl *s;

    g_assert_cmpint(snapctl_open(&s, f->path), ==, 0);
    return s;
}

static void test_open(Fixture *f, G_GNUC_UNUSED const void *data)
{
    g_autofree char *enable = g_build_filename(f->path, "enable", NULL);
    g_autofree char *text = NULL;
    struct snapctl *s = opened(f);
    size_t size;

    g_assert_true(g_file_get_contents(enable, &text, NULL, NULL));
    g_assert_cmpstr(text, ==, "1");
    g_assert_cmpstr(snapctl_path(s), ==, f->path);
    g_assert_cmpuint(snapctl_version(s), ==, 1);
    g_assert_cmpuint(snapctl_slots(s), ==, 3);
    g_assert_cmpuint(snapctl_min_interval_ms(s), ==, 8);
    g_assert_nonnull(snapctl_region(s, &size));
    g_assert_cmpuint(size, ==, REGION);
    snapctl_close(s);

    put(f, SNAPCTL_FEATURES, SNAPCTL_FEATURE_LOAD);
    put(f, SNAPCTL_VERSION, 7);
    s = opened(f);
    g_assert_null(snapctl_region(s, &size));
    g_assert_cmpuint(size, ==, 0);
    snapctl_close(s);
    snapctl_close(NULL);
}

static void test_open_fails(Fixture *f, G_GNUC_UNUSED const void *data)
{
    struct snapctl *s = NULL;

    g_assert_cmpint(snapctl_open(&s, "/nowhere"), ==, SNAPCTL_E_SYSTEM);
    g_assert_cmpint(errno, ==, ENOENT);
    g_assert_cmpstr(snapctl_strerror(SNAPCTL_E_SYSTEM), ==, strerror(ENOENT));
    put(f, SNAPCTL_VERSION, 0);
    g_assert_cmpint(snapctl_open(&s, f->path), ==, SNAPCTL_E_FOREIGN);
    put(f, SNAPCTL_VERSION, 1);
    put(f, SNAPCTL_MAGIC, 0xffffffff);
    g_assert_cmpint(snapctl_open(&s, f->path), ==, SNAPCTL_E_FOREIGN);
    put(f, SNAPCTL_MAGIC, SNAPCTL_MAGIC_VALUE);
    make_file(f->path, "resource2", 0);
    g_assert_cmpint(snapctl_open(&s, f->path), ==, SNAPCTL_E_SYSTEM);
    g_assert_cmpint(errno, ==, ENXIO);
    remove_file(f->path, "resource2");
    g_assert_cmpint(snapctl_open(&s, f->path), ==, SNAPCTL_E_SYSTEM);
    make_file(f->path, "resource0", 64);
    g_assert_cmpint(snapctl_open(&s, f->path), ==, SNAPCTL_E_FOREIGN);
    /* nobody uses the mapping that tear_down() unmaps */
    g_assert_null(s);
}

static void test_commands(Fixture *f, G_GNUC_UNUSED const void *data)
{
    struct snapctl *s = opened(f);

    pending_reads = 20010;      /* longer than the library spins */
    play(SNAPCTL_STATUS_SAVED, 0);
    g_assert_cmpint(snapctl_save(s, 2, 0), ==, SNAPCTL_SAVED);
    g_assert_cmpuint(last_slot, ==, 2);
    g_assert_cmpuint(last_command, ==, SNAPCTL_COMMAND_SAVE);
    forget();
    play(SNAPCTL_STATUS_LOADED, 0);
    g_assert_cmpint(snapctl_save(s, 0, 0), ==, SNAPCTL_LOADED);
    for (uint32_t e = SNAPCTL_ERROR_COMMAND; e <= SNAPCTL_ERROR_LIMIT; e++) {
        forget();
        play(e >= SNAPCTL_ERROR_HOST ? SNAPCTL_STATUS_FAILED
                                     : SNAPCTL_STATUS_REFUSED, e);
        g_assert_cmpint(snapctl_save(s, 0, 0), ==, -(int)e);
        g_assert_cmpuint(commands, ==, 1);
        g_assert_cmpstr(snapctl_strerror(-(int)e), !=, snapctl_strerror(-50));
    }
    forget();
    play(SNAPCTL_STATUS_REFUSED, 99);
    g_assert_cmpint(snapctl_save(s, 0, 0), ==, SNAPCTL_E_PROTOCOL);
    forget();
    play(77, 0);
    g_assert_cmpint(snapctl_load(s, 0, 0), ==, SNAPCTL_E_PROTOCOL);
    forget();
    play(SNAPCTL_STATUS_SAVED, 0);
    g_assert_cmpint(snapctl_load(s, 0, 0), ==, SNAPCTL_E_PROTOCOL);
    snapctl_close(s);
}

static void test_asks_again(Fixture *f, G_GNUC_UNUSED const void *data)
{
    struct snapctl *s = opened(f);
    gint64 begin;

    play(SNAPCTL_STATUS_REFUSED, SNAPCTL_ERROR_BUSY);
    play(SNAPCTL_STATUS_REFUSED, SNAPCTL_ERROR_TOO_SOON);
    play(SNAPCTL_STATUS_REFUSED, SNAPCTL_ERROR_TOO_SOON);
    play(SNAPCTL_STATUS_SAVED, 0);
    g_assert_cmpint(snapctl_save(s, 1, -1), ==, SNAPCTL_SAVED);
    g_assert_cmpuint(commands, ==, 4);
    forget();
    play(SNAPCTL_STATUS_REFUSED, SNAPCTL_ERROR_BUSY);
    begin = g_get_monotonic_time();
    g_assert_cmpint(snapctl_load(s, 1, 50), ==, SNAPCTL_E_BUSY);
    g_assert_cmpint(g_get_monotonic_time() - begin, >=, 45000);
    g_assert_cmpuint(commands, >, 2);
    forget();
    /* the snapshot was saved in the middle of the load */
    play(SNAPCTL_STATUS_LOADED, 0);
    play(SNAPCTL_STATUS_REFUSED, SNAPCTL_ERROR_EMPTY);
    g_assert_cmpint(snapctl_load(s, 1, 0), ==, SNAPCTL_E_EMPTY);
    g_assert_cmpuint(commands, ==, 2);
    snapctl_close(s);
}

static void test_generation(Fixture *f, G_GNUC_UNUSED const void *data)
{
    struct snapctl *s = opened(f);
    uint64_t now;

    put(f, SNAPCTL_GENERATION, 0xffffffff);
    put(f, SNAPCTL_GENERATION + 4, 4);
    g_assert_cmphex(snapctl_generation(s), ==, 0x4ffffffffULL);
    torn = 0x500000000ULL;
    g_assert_cmphex(snapctl_generation(s), ==, 0x500000000ULL);
    g_assert_cmpint(snapctl_wait(s, 0x500000000ULL, 20, &now), ==,
                    SNAPCTL_E_TIMEOUT);
    g_assert_cmphex(now, ==, 0x500000000ULL);
    g_assert_cmpint(snapctl_wait(s, 3, 0, &now), ==, 0);
    put(f, SNAPCTL_LOAD_NS, 1);
    put(f, SNAPCTL_LOAD_NS + 4, 2);
    g_assert_cmphex(snapctl_load_ns(s), ==, 0x200000001ULL);
    snapctl_close(s);
}

static void *raise_generation(void *opaque)
{
    g_usleep(30000);
    put(opaque, SNAPCTL_GENERATION, 1);
    return NULL;
}

static void test_wait(Fixture *f, G_GNUC_UNUSED const void *data)
{
    struct snapctl *s = opened(f);
    GThread *thread = g_thread_new("device", raise_generation, f);
    uint64_t now;

    g_assert_cmpint(snapctl_wait(s, 0, -1, &now), ==, 0);
    g_assert_cmpuint(now, ==, 1);
    g_thread_join(thread);
    snapctl_close(s);
}

static void test_random(Fixture *f, G_GNUC_UNUSED const void *data)
{
    struct snapctl *s = opened(f);
    uint8_t bytes[SNAPCTL_RANDOM_SIZE];

    for (int i = 0; i < SNAPCTL_RANDOM_SIZE; i++) {
        f->regs[SNAPCTL_RANDOM + i] = i;
    }
    snapctl_random(s, bytes);
    for (int i = 0; i < SNAPCTL_RANDOM_SIZE; i++) {
        g_assert_cmpuint(bytes[i], ==, i);
    }
    /* a load happens in the middle */
    random_tears = 1;
    snapctl_random(s, bytes);
    for (int i = 0; i < SNAPCTL_RANDOM_SIZE; i++) {
        g_assert_cmphex(bytes[i], ==, 0xab);
    }
    snapctl_close(s);
}

static void add(const char *name, void (*test)(Fixture *, const void *))
{
    g_autofree char *path = g_strdup_printf("/snapctl/lib/%s", name);

    g_test_add(path, Fixture, NULL, set_up, test, tear_down);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    add("open", test_open);
    add("open-fails", test_open_fails);
    add("commands", test_commands);
    add("asks-again", test_asks_again);
    add("generation", test_generation);
    add("wait", test_wait);
    add("random", test_random);
    return g_test_run();
}
