/*
 * Unit tests for going back to what a RAM block was
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include "emulator.h"
#include "system/ram-reset/template/file.h"

#define PAGE  4096
#define BITS  (8 * sizeof(unsigned long))
/* The last word of a bitmap is in part of use */
#define PAGES (5 * BITS + 7)
#define LEN   (PAGES * PAGE)

typedef struct Fixture {
    RamCopy *t;
    uint8_t *host;
    uint8_t *was;               /* what is kept */
    unsigned long *dirty;
    unsigned turn;
} Fixture;

static uint8_t *map(void)
{
    uint8_t *p = mmap(NULL, LEN, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    g_assert_true(p != MAP_FAILED);
    return p;
}

static bool test(const unsigned long *bits, size_t page)
{
    return bits[page / BITS] & (1ul << (page % BITS));
}

static void set(unsigned long *bits, size_t page)
{
    bits[page / BITS] |= 1ul << (page % BITS);
}

static void scribble(uint8_t *page)
{
    page[g_test_rand_int_range(0, PAGE)] ^= g_test_rand_int_range(1, 256);
}

/* What @host has, by way of a file behind other blocks */
static RamCopy *in_file(uint8_t *host)
{
    g_autofree char *path = g_dir_make_tmp("ram-reset-XXXXXX", NULL);
    g_autofree char *name = template_file_name("t");
    GArray *none = g_array_new(false, false, sizeof(PrimRange));
    GArray *runs = g_array_new(false, false, sizeof(PrimRange));
    TemplateFile *f = template_file_new("t", 0, PAGE);
    uint8_t *const hosts[] = { host, host };
    int dir = open(path, O_RDONLY | O_DIRECTORY);
    RamCopy *t;
    char *reason;

    /* In parts, as it is looked for */
    ram_copy_find_runs(host, 0, 2 * PAGE, PAGE, runs);
    ram_copy_find_runs(host, 2 * PAGE, LEN, PAGE, runs);
    template_file_add_block(f, "other", 3 * PAGE, none);
    template_file_add_block(f, "ram", LEN, runs);
    g_assert_true(template_file_write(f, dir, hosts, &reason));
    template_file_free(f);
    f = template_file_open(dir, "t", &reason);
    g_assert_nonnull(f);
    t = template_file_copy(f, 1);
    g_assert_nonnull(t);
    template_file_free(f);
    unlinkat(dir, name, 0);
    close(dir);
    rmdir(path);
    return t;
}

/* Every third page holds something, some of them only one byte */
static void setup(Fixture *f, gconstpointer by_file)
{
    f->host = map();
    f->was = map();
    for (size_t i = 0; i < PAGES; i += 3) {
        if (i % 2) {
            scribble(f->host + i * PAGE);
        } else {
            memset(f->host + i * PAGE, i + 1, PAGE);
        }
    }
    memcpy(f->was, f->host, LEN);
    if (by_file) {
        f->t = in_file(f->host);
    } else {
        f->t = ram_copy_new(LEN, PAGE);
        g_assert_nonnull(f->t);
        ram_copy_add(f->t, f->host, 0, LEN);
    }
    g_assert_cmpuint(ram_copy_words(f->t), ==, 6);
    f->dirty = g_new0(unsigned long, ram_copy_words(f->t));
}

static void teardown(Fixture *f, G_GNUC_UNUSED gconstpointer data)
{
    ram_copy_free(f->t);
    munmap(f->host, LEN);
    munmap(f->was, LEN);
    g_free(f->dirty);
}

static RamCopyCounts restore(Fixture *f, bool leave_zeros)
{
    RamCopyCounts counts = { 0 };
    size_t words = ram_copy_words(f->t), mid = g_test_rand_int_range(0, words);

    f->turn++;
    ram_copy_restore(f->t, f->host, f->dirty, 0, mid, f->turn, leave_zeros,
                     &counts);
    ram_copy_restore(f->t, f->host, f->dirty, mid, words, f->turn,
                     leave_zeros, &counts);
    return counts;
}

static void write_to(Fixture *f, size_t page)
{
    scribble(f->host + page * PAGE);
    set(f->dirty, page);
}

static void nothing_dirty(Fixture *f)
{
    memset(f->dirty, 0, ram_copy_words(f->t) * sizeof(f->dirty[0]));
}

static void test_size(Fixture *f, gconstpointer by_file)
{
    g_assert_cmpuint(ram_copy_size(f->t), ==, (PAGES + 2) / 3 * PAGE);
    if (by_file) {
        return;
    }
    /* BaselineBlock once more, they are not counted once more */
    ram_copy_add(f->t, f->host, 0, LEN / PAGE / 2 * PAGE);
    g_assert_cmpuint(ram_copy_size(f->t), ==, (PAGES + 2) / 3 * PAGE);
}

static void test_random(Fixture *f, G_GNUC_UNUSED gconstpointer data)
{
    for (unsigned round = 0; round < 300; round++) {
        size_t stored = 0, zero = 0, writes = g_test_rand_int_range(0, PAGES);
        RamCopyCounts counts;

        nothing_dirty(f);
        for (size_t i = 0; i < writes; i++) {
            write_to(f, g_test_rand_int_range(0, PAGES));
        }
        for (size_t i = 0; i < PAGES; i++) {
            stored += test(f->dirty, i) && i % 3 == 0;
            zero += test(f->dirty, i) && i % 3;
        }
        counts = restore(f, false);
        g_assert_cmpuint(counts.dirty, ==, stored + zero);
        g_assert_cmpuint(counts.cold, <=, counts.dirty);
        /* A page that was written to is not one found unchanged, but twice */
        g_assert_cmpuint(counts.copied, <=, stored);
        g_assert_cmpuint(counts.cleared, <=, zero);
        g_assert_cmpuint(counts.copied + counts.cleared + counts.stale, ==,
                         stored + zero);
        g_assert_cmpint(memcmp(f->host, f->was, LEN), ==, 0);
    }
}

static void test_only_dirty(Fixture *f, G_GNUC_UNUSED gconstpointer data)
{
    for (size_t i = 0; i < PAGES; i++) {
        scribble(f->host + i * PAGE);
        if (i % 5 == 0) {
            set(f->dirty, i);
        }
    }
    restore(f, false);
    for (size_t i = 0; i < PAGES; i++) {
        g_assert_cmpint(!memcmp(f->host + i * PAGE, f->was + i * PAGE, PAGE),
                        ==, i % 5 == 0);
    }
}

static void test_leave_zeros(Fixture *f, G_GNUC_UNUSED gconstpointer data)
{
    uint64_t start, end = 0;
    size_t at = 0;

    for (size_t i = 0; i < PAGES; i++) {
        if (i % 7 < 4) {
            write_to(f, i);
        }
    }
    g_assert_cmpuint(restore(f, true).cleared, >, 0);
    while (ram_copy_zeros(f->t, f->dirty, end, &start, &end)) {
        for (; at < start / PAGE; at++) {
            g_assert_false(test(f->dirty, at) && at % 3);
        }
        for (; at < end / PAGE; at++) {
            g_assert_true(test(f->dirty, at) && at % 3);
            g_assert_cmpint(memcmp(f->host + at * PAGE, f->was + at * PAGE,
                                   PAGE), !=, 0);
            memset(f->host + at * PAGE, 0, PAGE);
        }
    }
    for (; at < PAGES; at++) {
        g_assert_false(test(f->dirty, at) && at % 3);
    }
    g_assert_cmpint(memcmp(f->host, f->was, LEN), ==, 0);
}

/* What is untracked is reported as dirty, written to or not */
static void test_hot(Fixture *f, G_GNUC_UNUSED gconstpointer data)
{
    const size_t untracked = BITS + 3, once = BITS + 4;
    unsigned load, stale = 0;

    for (load = 0; load < 40; load++) {
        nothing_dirty(f);
        write_to(f, untracked);
        if (load == 5) {
            write_to(f, once);
        }
        g_assert_cmpuint(restore(f, false).cold, ==,
                         (load < 2) + (load == 5));
        g_assert_cmpint(test(ram_copy_untracked(f->t), untracked),
                        ==, load > 0);
        g_assert_false(test(ram_copy_untracked(f->t), once));
    }
    /* Written to no more */
    nothing_dirty(f);
    set(f->dirty, untracked);
    for (load = 0;
         load < 8 && test(ram_copy_untracked(f->t), untracked); load++) {
        stale += restore(f, false).stale;
    }
    g_assert_false(test(ram_copy_untracked(f->t), untracked));
    g_assert_cmpuint(stale, ==, 1);
    /* Dirty once more, since it was not protected: that makes none untracked */
    restore(f, false);
    g_assert_false(test(ram_copy_untracked(f->t), untracked));
}

/* An accelerator that tracks untracked pages, too, does not report them then */
static void test_hot_not_dirty(Fixture *f, G_GNUC_UNUSED gconstpointer data)
{
    for (unsigned load = 0; load < 3; load++) {
        write_to(f, 9);
        restore(f, false);
    }
    g_assert_true(test(ram_copy_untracked(f->t), 9));
    nothing_dirty(f);
    restore(f, false);
    g_assert_false(test(ram_copy_untracked(f->t), 9));
    write_to(f, 9);
    restore(f, false);
    g_assert_false(test(ram_copy_untracked(f->t), 9));
}

static void test_compare(Fixture *f, G_GNUC_UNUSED gconstpointer data)
{
    RamCopyCounts counts = { 0 };
    size_t words = ram_copy_words(f->t);
    g_autofree unsigned long *differing = g_new0(unsigned long, words);

    scribble(f->host);
    scribble(f->host + PAGE);
    scribble(f->host + LEN - PAGE);
    ram_copy_compare(f->t, f->host, NULL, 0, 2, differing, &counts);
    ram_copy_compare(f->t, f->host, NULL, 2, words, differing, &counts);
    g_assert_cmpint(memcmp(f->host, f->was, LEN), ==, 0);
    g_assert_cmpuint(differing[0], ==, 3);
    g_assert_true(test(differing, LEN / PAGE - 1));
    g_assert_cmpuint(counts.dirty, ==, 3);
    g_assert_cmpuint(counts.copied + counts.cleared, ==, 3);
    ram_copy_compare(f->t, f->host, NULL, 0, words, NULL, &counts);
    g_assert_cmpuint(counts.dirty, ==, 3);

    /* What is kept, and what is there; nothing else is looked at */
    set(f->dirty, 1);
    scribble(f->host + PAGE);
    scribble(f->host + 2 * PAGE);
    scribble(f->host + 3 * PAGE);
    ram_copy_compare(f->t, f->host, f->dirty, 0, words, NULL, &counts);
    g_assert_cmpuint(counts.dirty, ==, 5);
    g_assert_cmpint(memcmp(f->host + 2 * PAGE, f->was + 2 * PAGE, PAGE), !=,
                    0);
    memset(f->host + 2 * PAGE, 0, PAGE);
    g_assert_cmpint(memcmp(f->host, f->was, LEN), ==, 0);
}

/* Holes stay holes */
/* Bytes of mappings that are not part of a core dump, as only the copy is */
static uint64_t resident(void)
{
    g_autofree char *smaps = NULL;
    g_auto(GStrv) lines = NULL;
    uint64_t rss = 0, sum = 0;

    g_assert_true(g_file_get_contents("/proc/self/smaps", &smaps, NULL, NULL));
    lines = g_strsplit(smaps, "\n", 0);
    for (char **line = lines; *line; line++) {
        if (g_str_has_prefix(*line, "Rss:")) {
            rss = g_ascii_strtoull(*line + strlen("Rss:"), NULL, 10) * 1024;
        } else if (g_str_has_prefix(*line, "VmFlags:") &&
                   strstr(*line, " dd") && strstr(*line, " nr")) {
            sum += rss;
        }
    }
    return sum;
}

/* The host's pages that have any of what is stored: each third */
static uint64_t pages_stored(void)
{
    size_t host = getauxval(AT_PAGESZ), last = SIZE_MAX;
    uint64_t sum = 0;

    for (size_t i = 0; i < PAGES; i += 3) {
        if (i * PAGE / host != last) {
            last = i * PAGE / host;
            sum += MAX(host, PAGE);
        }
    }
    return sum;
}

static void test_sparse(Fixture *f, G_GNUC_UNUSED gconstpointer data)
{
    RamCopyCounts counts = { 0 };

    if (emulator_lacks("the sizes in /proc/self/smaps")) {
        return;
    }
    for (unsigned load = 0; load < 20; load++) {
        for (size_t i = 0; i < PAGES; i++) {
            write_to(f, i);
        }
        restore(f, false);
    }
    ram_copy_compare(f->t, f->host, NULL, 0, ram_copy_words(f->t), NULL,
                     &counts);
    g_assert_cmpuint(resident(), ==, pages_stored());
}

/* Of what is zero in the template only that is dirty which is present */
static void test_spare(Fixture *f, G_GNUC_UNUSED gconstpointer data)
{
    g_autofree unsigned long *present = g_new0(unsigned long,
                                               ram_copy_words(f->t));

    for (size_t i = 0; i < PAGES; i++) {
        if (i % 5) {
            set(f->dirty, i);
        }
        if (i % 2) {
            set(present, i);
        }
    }
    ram_copy_spare(f->t, f->dirty, present);
    for (size_t i = 0; i < PAGES; i++) {
        bool stored = i % 3 == 0;

        g_assert_cmpint(test(f->dirty, i), ==,
                        i % 5 && (stored || i % 2));
    }
}

static void test_no_memory(void)
{
    struct rlimit had, little;

    if (emulator_lacks("RLIMIT_AS")) {
        return;
    }
    g_assert_cmpint(getrlimit(RLIMIT_AS, &had), ==, 0);
    little = had;
    little.rlim_cur = 1ul << 34;
    g_assert_cmpint(setrlimit(RLIMIT_AS, &little), ==, 0);
    errno = 0;
    g_assert_null(ram_copy_new(1ul << 35, PAGE));
    g_assert_cmpint(errno, ==, ENOMEM);
    g_assert_cmpint(setrlimit(RLIMIT_AS, &had), ==, 0);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*func)(Fixture *f, G_GNUC_UNUSED gconstpointer data);
    } tests[] = {
        { "/template/size", test_size },
        { "/template/random", test_random },
        { "/template/only-dirty", test_only_dirty },
        { "/template/leave-zeros", test_leave_zeros },
        { "/template/untracked", test_hot },
        { "/template/untracked-not-dirty", test_hot_not_dirty },
        { "/template/compare", test_compare },
        { "/template/sparse", test_sparse },
        { "/template/spare", test_spare },
    };

    g_test_init(&argc, &argv, NULL);
    for (size_t i = 0; i < G_N_ELEMENTS(tests); i++) {
        g_autofree char *of_file = g_strconcat(tests[i].name, "/file", NULL);

        g_test_add(tests[i].name, Fixture, NULL, setup, tests[i].func,
                   teardown);
        g_test_add(of_file, Fixture, "", setup, tests[i].func, teardown);
    }
    g_test_add_func("/template/no-memory", test_no_memory);
    return g_test_run();
}
