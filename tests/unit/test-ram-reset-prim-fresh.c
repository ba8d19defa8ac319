/*
 * Unit tests for fresh memory of system/ram-reset/prim/memory.c
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

/* Alone: it takes all hugepages of the host */

#include "qemu/osdep.h"
#include <linux/mempolicy.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include "emulator.h"
#include "ram.h"

static void swap(Ram *ram)
{
    PrimFresh fresh;

    memset(ram->map.host, 0xa5, ram->map.len);
    g_assert_cmpint(prim_fresh_map(&ram->map, &fresh), ==, 0);
    g_assert_true(all_are(ram, 0xa5));
    g_assert_cmpint(prim_fresh_swap(&ram->map, &fresh), ==, 0);
}

/* Allocates no memory, since that might map some */
static unsigned mappings(void)
{
    int fd = open("/proc/self/maps", O_RDONLY);
    unsigned n = 0;
    char c;

    while (read(fd, &c, 1) == 1) {
        n += c == '\n';
    }
    close(fd);
    return n;
}

static int lowest_free_descriptor(void)
{
    int fd = dup(2);

    close(fd);
    return fd;
}

typedef struct Test {
    void (*run)(Ram *ram);
    const Kind *kind;
} Test;

/* Neither the old memory nor a failed attempt leaves memory or files */
static void run(gconstpointer data)
{
    const Test *t = data;

    if (possible(t->kind)) {
        Ram *ram = ram_new(t->kind, "ram", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        unsigned before = mappings();
        int fd = lowest_free_descriptor();

        memset(ram->map.host, 0xa5, ram->map.len);
        t->run(ram);
        g_assert_cmpuint(mappings(), ==, before);
        g_assert_cmpint(lowest_free_descriptor(), ==, fd);
        ram_free(ram);
    }
}

static void test_swap(Ram *ram)
{
    size_t pages = ram->map.len / getauxval(AT_PAGESZ);
    unsigned char in_core[4 * HUGE_SIZE / 4096];

    for (unsigned i = 0; i < 50; i++) {
        swap(ram);
        g_assert_cmpint(mincore(ram->map.host, ram->map.len, in_core), ==, 0);
        g_assert_null(memchr(in_core, 1, pages));
        g_assert_true(all_are(ram, 0));
    }
}

static void test_numa_policy(Ram *ram)
{
    static const int modes[] = { MPOL_BIND, MPOL_PREFERRED, MPOL_INTERLEAVE,
                                 MPOL_DEFAULT };

    for (unsigned i = 0; i < G_N_ELEMENTS(modes); i++) {
        unsigned long node0 = modes[i] != MPOL_DEFAULT, nodes[16] = { 0 };
        int mode = -1;

        if (syscall(SYS_mbind, ram->map.host, ram->map.len, modes[i], &node0,
                    8 * sizeof(node0), 0) < 0) {
            g_test_skip("no mbind() here");
            return;
        }
        swap(ram);
        g_assert_cmpint(syscall(SYS_get_mempolicy, &mode, nodes,
                                8 * sizeof(nodes),
                                ram->map.host + ram->map.len - 1,
                                MPOL_F_ADDR), ==, 0);
        g_assert_cmpint(mode, ==, modes[i]);
        g_assert_cmpuint(nodes[0], ==, node0);
    }
}

static void test_calls(Ram *ram)
{
    uint64_t each;

    swap(ram);
    each = ram->calls;
    swap(ram);
    g_assert_cmpuint(ram->calls, ==, 2 * each);
    if (ram->map.fd < 0) {
        /* mmap, get_mempolicy, mremap */
        g_assert_cmpuint(each, ==, 3);
    }
}

static void test_file(Ram *ram)
{
    uint8_t *other = mmap(NULL, ram->map.len, PROT_READ, MAP_SHARED,
                          ram->map.fd, ram->map.fd_offset);
    struct stat old, new;
    uint8_t byte;

    g_assert_true(other != MAP_FAILED);
    g_assert_cmpint(fstat(ram->map.fd, &old), ==, 0);
    swap(ram);
    g_assert_cmpint(fstat(ram->map.fd, &new), ==, 0);
    g_assert_cmpuint(new.st_ino, !=, old.st_ino);
    g_assert_cmpuint(new.st_size, ==, old.st_size);
    g_assert_cmpuint(new.st_blksize, ==, old.st_blksize);
    ram->map.host[0] = 9;
    g_assert_cmpint(pread(ram->map.fd, &byte, 1, ram->map.fd_offset), ==, 1);
    g_assert_cmpuint(byte, ==, ram->map.shared ? 9 : 0);
    g_assert_cmpuint(other[0], ==, ram->map.shared ? 0xa5 : 0);
    munmap(other, ram->map.len);
}

static void check_attributes(const char *name, unsigned flags, int seals)
{
    Ram *ram = ram_new(&kinds[2], name, flags);
    g_autofree char *path = g_strdup_printf("/proc/self/fd/%d", ram->map.fd);
    g_autofree char *old = g_file_read_link(path, NULL), *new = NULL;

    fcntl(ram->map.fd, F_ADD_SEALS, seals);
    seals = fcntl(ram->map.fd, F_GET_SEALS);
    swap(ram);
    new = g_file_read_link(path, NULL);
    g_assert_cmpstr(new, ==, old);
    g_assert_true(prim_is_memfd(ram->map.fd));
    g_assert_cmpint(fcntl(ram->map.fd, F_GET_SEALS), ==, seals);
    g_assert_cmpint(fcntl(ram->map.fd, F_GETFD), ==,
                    flags & MFD_CLOEXEC ? FD_CLOEXEC : 0);
    ram_free(ram);
}

static void test_attributes(void)
{
    g_autofree char *longest = g_strnfill(249, 'x');

    check_attributes("ram", 0, 0);
    check_attributes("", MFD_CLOEXEC, 0);
    check_attributes("pc.ram (deleted)", MFD_ALLOW_SEALING, 0);
    check_attributes("/a/b c\n", MFD_ALLOW_SEALING | MFD_CLOEXEC,
                     F_SEAL_GROW | F_SEAL_SHRINK);
    check_attributes(longest, MFD_ALLOW_SEALING | MFD_CLOEXEC,
                     F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL);
    check_attributes("memfd:", MFD_ALLOW_SEALING, F_SEAL_SEAL);
}

static void test_other_files(Ram *ram)
{
    g_autofree char *name = NULL;
    int fd = g_file_open_tmp("memfd:XXXXXX", &name, NULL);
    const char *const paths[] = { name, "/dev/zero", "/proc/self/exe", "/" };
    PrimFresh fresh;

    close(fd);
    for (unsigned i = 0; i < G_N_ELEMENTS(paths); i++) {
        ram->map.fd = open(paths[i], O_RDONLY);
        g_assert_false(prim_is_memfd(ram->map.fd));
        g_assert_cmpint(prim_fresh_map(&ram->map, &fresh), ==, -EINVAL);
        g_assert_true(all_are(ram, 0xa5));
        close(ram->map.fd);
    }
    unlink(name);
    ram->map.fd = -1;
}

static int fresh_map_limited(const PrimMap *map, int resource, rlim_t max)
{
    struct rlimit old, new;
    PrimFresh fresh;
    int ret;

    g_assert_cmpint(getrlimit(resource, &old), ==, 0);
    new = (struct rlimit) { .rlim_cur = max, .rlim_max = old.rlim_max };
    g_assert_cmpint(setrlimit(resource, &new), ==, 0);
    ret = prim_fresh_map(map, &fresh);
    setrlimit(resource, &old);
    return ret;
}

static void test_limits(Ram *ram)
{
    if (emulator_lacks("RLIMIT_AS")) {
        return;
    }
    if (ram->map.fd >= 0) {
        g_assert_cmpint(fresh_map_limited(&ram->map, RLIMIT_NOFILE, 0), ==,
                        -EMFILE);
        /* The call fails without SIGXFSZ */
        g_assert_cmpint(fresh_map_limited(&ram->map, RLIMIT_FSIZE, 0), ==,
                        -EFBIG);
        g_assert_true(all_are(ram, 0xa5));
    }
    g_assert_cmpint(fresh_map_limited(&ram->map, RLIMIT_AS, 1), ==, -ENOMEM);
    /* The kernel reports the same error for a pool without hugepages */
    g_assert_true(all_are(ram, 0xa5) ||
                  (ram->map.page_size == HUGE_SIZE && all_are(ram, 0)));
}

/* mremap() fails if there are too many mappings already */
static void test_too_many_mappings(Ram *ram)
{
    size_t page = getauxval(AT_PAGESZ), at = 0;
    size_t len = number_in("/proc/sys/vm/max_map_count") * page;
    PrimFresh fresh;
    uint8_t *p;
    int ret;

    if (len / page > 200000) {
        g_test_skip("vm.max_map_count is too high to be reached");
        return;
    }
    g_assert_cmpint(prim_fresh_map(&ram->map, &fresh), ==, 0);
    p = mmap(NULL, len, PROT_NONE,
             MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    g_assert_true(p != MAP_FAILED);
    while (at < len && !mprotect(p + at, page, PROT_READ)) {
        at += 2 * page;
    }
    ret = prim_fresh_swap(&ram->map, &fresh);
    munmap(p, len);
    g_assert_true(ret == -ENOMEM || (ret == 0 && ram->map.fd >= 0));
    g_assert_true(all_are(ram, ret ? 0xa5 : 0));
}

static void assert_pages(const uint8_t *host, unsigned from, unsigned to,
                         uint8_t value)
{
    size_t page = getauxval(AT_PAGESZ);

    for (size_t at = from * page; at < to * page; at++) {
        g_assert_cmpuint(host[at], ==, value);
    }
}

/* Parts of anonymous memory are mapped from a file, then unmapped */
static void test_overlay(Ram *ram)
{
    size_t page = ram->map.page_size;
    const PrimRange parts[] = { { page, 2 * page }, { 7 * page, page } };
    const PrimRange part = { 2 * page, 6 * page };
    int fd = memfd_create("template", MFD_CLOEXEC);
    g_autofree uint8_t *content = g_malloc(16 * page);

    memset(content, 0x33, 16 * page);
    g_assert_cmpint(write(fd, content, 16 * page), ==, 16 * page);
    g_assert_cmpint(prim_overlay(&ram->map, fd, 4 * page, parts, 2), ==, 0);
    assert_pages(ram->map.host, 0, 1, 0xa5);
    assert_pages(ram->map.host, 1, 3, 0x33);
    assert_pages(ram->map.host, 3, 7, 0xa5);
    assert_pages(ram->map.host, 7, 8, 0x33);
    assert_pages(ram->map.host, 8, 64, 0xa5);
    memset(ram->map.host, 0x77, ram->map.len);
    g_assert_cmpint(pread(fd, content, 16 * page, 0), ==, 16 * page);
    for (size_t i = 0; i < 16 * page; i++) {
        g_assert_cmpuint(content[i], ==, 0x33);
    }
    g_assert_cmpint(prim_overlay(&ram->map, -1, 0, &part, 1), ==, 0);
    assert_pages(ram->map.host, 0, 2, 0x77);
    assert_pages(ram->map.host, 2, 8, 0);
    assert_pages(ram->map.host, 8, 64, 0x77);
    /* Memory that is discarded there also reads zero */
    g_assert_cmpint(madvise(ram->map.host + part.start, part.len,
                            MADV_DONTNEED), ==, 0);
    assert_pages(ram->map.host, 2, 8, 0);
    close(fd);
    /* Memory is one mapping again */
    swap(ram);
}

/* A refusal changes nothing */
static void test_overlay_refused(Ram *ram)
{
    const PrimRange part = { 0, ram->map.page_size };
    int pipes[2];

    g_assert_cmpint(pipe(pipes), ==, 0);
    g_assert_cmpint(prim_overlay(&ram->map, pipes[0], 0, &part, 1), ==,
                    -ENODEV);
    g_assert_true(all_are(ram, 0xa5));
    close(pipes[0]);
    close(pipes[1]);
}

/* False if the pool has changed at the end, see the caller */
static bool swap_in_a_full_pool(unsigned used)
{
    uint64_t spare = hugepages_to_spare(), held;
    Ram *ram = ram_new(&kinds[5], "ram", MFD_CLOEXEC);
    size_t fill = (hugepages_to_spare() - 1) * HUGE_SIZE;
    uint8_t *filler = mmap(NULL, fill, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB |
                           HUGE_FLAG, -1, 0);
    PrimFresh fresh;
    int ret;

    memset(ram->map.host, 0xa5, used * HUGE_SIZE);
    ret = prim_fresh_map(&ram->map, &fresh) ?:
          prim_fresh_swap(&ram->map, &fresh);
    munmap(filler, fill);
    held = spare - hugepages_to_spare();
    g_assert_true(all_are(ram, 0));
    ram_free(ram);
    return filler != MAP_FAILED && (ret == 0 || used < 4) && held == 4 &&
           hugepages_to_spare() == spare;
}

static void test_full_pool(void)
{
    for (unsigned used = 0, tries = 0; used <= 4 && possible(&kinds[5]);) {
        used += swap_in_a_full_pool(used);
        /* Others may have used the pool meanwhile */
        g_assert_cmpuint(tries++, <, 20);
    }
}

static void add(const char *name, void (*run_test)(Ram *ram), const Kind *kind)
{
    g_autofree char *path = g_strdup_printf("/remap/%s/%s", name, kind->name);
    Test *t = g_new(Test, 1);

    *t = (Test) { .run = run_test, .kind = kind };
    g_test_add_data_func_full(path, t, run, g_free);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    for (unsigned i = 0; i < G_N_ELEMENTS(kinds); i++) {
        add("swap", test_swap, &kinds[i]);
        add("numa-policy", test_numa_policy, &kinds[i]);
        add("calls", test_calls, &kinds[i]);
        add("limits", test_limits, &kinds[i]);
        if (kinds[i].memfd) {
            add("file", test_file, &kinds[i]);
        }
    }
    add("overlay", test_overlay, &kinds[0]);
    add("overlay-refused", test_overlay_refused, &kinds[0]);
    add("other-files", test_other_files, &kinds[0]);
    add("too-many-mappings", test_too_many_mappings, &kinds[1]);
    add("too-many-mappings", test_too_many_mappings, &kinds[2]);
    g_test_add_func("/remap/attributes", test_attributes);
    g_test_add_func("/remap/full-pool", test_full_pool);
    return g_test_run();
}
