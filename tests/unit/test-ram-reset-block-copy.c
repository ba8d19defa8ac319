/*
 * Unit tests for restoring a RAM block
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <sys/auxv.h>
#include <sys/resource.h>
#include "copies.h"
#include "emulator.h"

static void test_size(CopyFixture *f, gconstpointer by_file)
{
    g_assert_cmpuint(ram_copy_size(f->t), ==, (PAGES + 2) / 3 * PAGE);
    if (by_file) {
        return;
    }
    /* BaselineBlock once more, they are not counted once more */
    ram_copy_add(f->t, f->host, 0, LEN / PAGE / 2 * PAGE);
    g_assert_cmpuint(ram_copy_size(f->t), ==, (PAGES + 2) / 3 * PAGE);
}

static void test_random(CopyFixture *f, G_GNUC_UNUSED gconstpointer data)
{
    for (unsigned round = 0; round < 300; round++) {
        size_t stored = 0, zero = 0, writes = g_test_rand_int_range(0, PAGES);
        RamCopyCounts counts;

        copy_clean(f);
        for (size_t i = 0; i < writes; i++) {
            copy_write(f, g_test_rand_int_range(0, PAGES));
        }
        for (size_t i = 0; i < PAGES; i++) {
            stored += bit_is_set(f->dirty, i) && i % 3 == 0;
            zero += bit_is_set(f->dirty, i) && i % 3;
        }
        counts = copy_restore(f, false);
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

static void test_only_dirty(CopyFixture *f, G_GNUC_UNUSED gconstpointer data)
{
    for (size_t i = 0; i < PAGES; i++) {
        copy_scribble(f->host + i * PAGE);
        if (i % 5 == 0) {
            bit_set(f->dirty, i);
        }
    }
    copy_restore(f, false);
    for (size_t i = 0; i < PAGES; i++) {
        g_assert_cmpint(!memcmp(f->host + i * PAGE, f->was + i * PAGE, PAGE),
                        ==, i % 5 == 0);
    }
}

static void test_leave_zeros(CopyFixture *f, G_GNUC_UNUSED gconstpointer data)
{
    uint64_t start, end = 0;
    size_t at = 0;

    for (size_t i = 0; i < PAGES; i++) {
        if (i % 7 < 4) {
            copy_write(f, i);
        }
    }
    g_assert_cmpuint(copy_restore(f, true).cleared, >, 0);
    while (ram_copy_zeros(f->t, f->dirty, end, &start, &end)) {
        for (; at < start / PAGE; at++) {
            g_assert_false(bit_is_set(f->dirty, at) && at % 3);
        }
        for (; at < end / PAGE; at++) {
            g_assert_true(bit_is_set(f->dirty, at) && at % 3);
            g_assert_cmpint(memcmp(f->host + at * PAGE, f->was + at * PAGE,
                                   PAGE), !=, 0);
            memset(f->host + at * PAGE, 0, PAGE);
        }
    }
    for (; at < PAGES; at++) {
        g_assert_false(bit_is_set(f->dirty, at) && at % 3);
    }
    g_assert_cmpint(memcmp(f->host, f->was, LEN), ==, 0);
}

/* The log reports untracked pages as dirty, written to or not */
static void test_hot(CopyFixture *f, G_GNUC_UNUSED gconstpointer data)
{
    const size_t untracked = BITS + 3, once = BITS + 4;
    unsigned load, stale = 0;

    for (load = 0; load < 40; load++) {
        copy_clean(f);
        copy_write(f, untracked);
        if (load == 5) {
            copy_write(f, once);
        }
        g_assert_cmpuint(copy_restore(f, false).cold, ==,
                         (load < 2) + (load == 5));
        g_assert_cmpint(bit_is_set(ram_copy_untracked(f->t), untracked),
                        ==, load > 0);
        g_assert_false(bit_is_set(ram_copy_untracked(f->t), once));
    }
    /* The guest writes to no page any more */
    copy_clean(f);
    bit_set(f->dirty, untracked);
    for (load = 0;
         load < 8 && bit_is_set(ram_copy_untracked(f->t), untracked); load++) {
        stale += copy_restore(f, false).stale;
    }
    g_assert_false(bit_is_set(ram_copy_untracked(f->t), untracked));
    g_assert_cmpuint(stale, ==, 1);
    /* Dirty once more, since it was not protected: no page becomes untracked */
    copy_restore(f, false);
    g_assert_false(bit_is_set(ram_copy_untracked(f->t), untracked));
}

/* An accelerator that also tracks untracked pages does not report them then */
static void test_hot_not_dirty(CopyFixture *f, G_GNUC_UNUSED gconstpointer data)
{
    for (unsigned load = 0; load < 3; load++) {
        copy_write(f, 9);
        copy_restore(f, false);
    }
    g_assert_true(bit_is_set(ram_copy_untracked(f->t), 9));
    copy_clean(f);
    copy_restore(f, false);
    g_assert_false(bit_is_set(ram_copy_untracked(f->t), 9));
    copy_write(f, 9);
    copy_restore(f, false);
    g_assert_false(bit_is_set(ram_copy_untracked(f->t), 9));
}

static void test_compare(CopyFixture *f, G_GNUC_UNUSED gconstpointer data)
{
    RamCopyCounts counts = { 0 };
    size_t words = ram_copy_words(f->t);
    g_autofree unsigned long *differing = g_new0(unsigned long, words);

    copy_scribble(f->host);
    copy_scribble(f->host + PAGE);
    copy_scribble(f->host + LEN - PAGE);
    ram_copy_compare(f->t, f->host, NULL, NULL, 0, 2, differing, &counts);
    ram_copy_compare(f->t, f->host, NULL, NULL, 2, words, differing, &counts);
    g_assert_cmpint(memcmp(f->host, f->was, LEN), ==, 0);
    g_assert_cmpuint(differing[0], ==, 3);
    g_assert_true(bit_is_set(differing, LEN / PAGE - 1));
    g_assert_cmpuint(counts.dirty, ==, 3);
    g_assert_cmpuint(counts.copied + counts.cleared, ==, 3);
    ram_copy_compare(f->t, f->host, NULL, NULL, 0, words, NULL, &counts);
    g_assert_cmpuint(counts.dirty, ==, 3);

    /* The comparison reads only the copy and the memory */
    bit_set(f->dirty, 1);
    copy_scribble(f->host + PAGE);
    copy_scribble(f->host + 2 * PAGE);
    copy_scribble(f->host + 3 * PAGE);
    ram_copy_compare(f->t, f->host, f->dirty, NULL, 0, words, NULL, &counts);
    g_assert_cmpuint(counts.dirty, ==, 5);
    g_assert_cmpint(memcmp(f->host + 2 * PAGE, f->was + 2 * PAGE, PAGE), !=,
                    0);
    memset(f->host + 2 * PAGE, 0, PAGE);
    g_assert_cmpint(memcmp(f->host, f->was, LEN), ==, 0);
}

/* Holes stay holes */
/* Bytes of mappings that core dumps exclude: only those of the copy */
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

/* Host pages with stored data: each third */
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

static void test_sparse(CopyFixture *f, G_GNUC_UNUSED gconstpointer data)
{
    RamCopyCounts counts = { 0 };

    if (emulator_lacks("the sizes in /proc/self/smaps")) {
        return;
    }
    for (unsigned load = 0; load < 20; load++) {
        for (size_t i = 0; i < PAGES; i++) {
            copy_write(f, i);
        }
        copy_restore(f, false);
    }
    ram_copy_compare(f->t, f->host, NULL, NULL, 0, ram_copy_words(f->t), NULL,
                     &counts);
    g_assert_cmpuint(resident(), ==, pages_stored());
}

/* A page that is zero in the template stays dirty only if it is present */
static void test_spare(CopyFixture *f, G_GNUC_UNUSED gconstpointer data)
{
    g_autofree unsigned long *present = g_new0(unsigned long,
                                               ram_copy_words(f->t));

    for (size_t i = 0; i < PAGES; i++) {
        if (i % 5) {
            bit_set(f->dirty, i);
        }
        if (i % 2) {
            bit_set(present, i);
        }
    }
    ram_copy_spare(f->t, f->dirty, present);
    for (size_t i = 0; i < PAGES; i++) {
        bool stored = i % 3 == 0;

        g_assert_cmpint(bit_is_set(f->dirty, i), ==,
                        i % 5 && (stored || i % 2));
    }
}

static void test_unread(void)
{
    RamCopy *t = ram_copy_new(LEN, PAGE);
    g_autofree unsigned long *pages = g_new0(unsigned long, ram_copy_words(t));
    g_autofree unsigned long *found = g_new0(unsigned long, ram_copy_words(t));
    g_autofree unsigned long *one = g_new0(unsigned long, ram_copy_words(t));

    g_assert_cmpuint(ram_copy_find_unread(t, NULL, NULL, found), ==, 0);
    for (size_t i = 1; i < PAGES; i += 2) {
        bit_set(pages, i);
    }
    g_assert_true(ram_copy_expect(t, pages));
    g_assert_cmpuint(ram_copy_size(t), ==, PAGES / 2 * PAGE);
    g_assert_cmpuint(ram_copy_find_unread(t, NULL, NULL, found), ==, PAGES / 2);
    g_assert_cmpmem(found, ram_copy_words(t) * sizeof(*found),
                    pages, ram_copy_words(t) * sizeof(*pages));
    bit_set(one, 2);
    g_assert_cmpuint(ram_copy_find_unread(t, one, NULL, found), ==, 0);
    bit_set(one, PAGES - 2);
    g_assert_cmpuint(ram_copy_find_unread(t, one, NULL, found), ==, 1);
    g_assert_true(bit_is_set(found, PAGES - 2));
    g_assert_cmpuint(ram_copy_find_unread(t, NULL, one, found), ==,
                     PAGES / 2 - 1);
    g_assert_true(ram_copy_is_unread(t, PAGES - 2));
    g_assert_false(ram_copy_is_unread(t, PAGES - 1));
    ram_copy_has_read(t, one);
    g_assert_false(ram_copy_is_unread(t, PAGES - 2));
    g_assert_true(bit_is_set(ram_copy_stored(t), PAGES - 2));
    g_assert_cmpuint(ram_copy_find_unread(t, NULL, NULL, found), ==,
                     PAGES / 2 - 1);
    g_assert_cmpuint(ram_copy_size(t), ==, PAGES / 2 * PAGE);
    ram_copy_free(t);
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
        void (*func)(CopyFixture *f, G_GNUC_UNUSED gconstpointer data);
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

        g_test_add(tests[i].name, CopyFixture, NULL, copy_setup, tests[i].func,
                   copy_teardown);
        g_test_add(of_file, CopyFixture, "", copy_setup, tests[i].func,
                   copy_teardown);
    }
    g_test_add_func("/template/unread", test_unread);
    g_test_add_func("/template/no-memory", test_no_memory);
    return g_test_run();
}
