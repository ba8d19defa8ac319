/*
 * A RAM block and its copy, in memory or in a file, for tests of restoring
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "copies.h"

static uint8_t *map(void)
{
    uint8_t *p = mmap(NULL, LEN, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    g_assert_true(p != MAP_FAILED);
    return p;
}

bool bit_is_set(const unsigned long *bits, size_t page)
{
    return bits[page / BITS] & (1ul << (page % BITS));
}

void bit_set(unsigned long *bits, size_t page)
{
    bits[page / BITS] |= 1ul << (page % BITS);
}

void copy_scribble(uint8_t *page)
{
    page[g_test_rand_int_range(0, PAGE)] ^= g_test_rand_int_range(1, 256);
}

/* A copy of @host in a file, behind other blocks */
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

    /* Store the copy in parts, as a search finds them */
    ram_copy_find_runs(host, 0, 2 * PAGE, PAGE, runs);
    ram_copy_find_runs(host, 2 * PAGE, LEN, PAGE, runs);
    template_file_add_block(f, "other", 3 * PAGE, none);
    template_file_add_block(f, "ram", LEN, runs);
    g_assert_true(template_file_write(f, dir, hosts, NULL));
    template_file_free(f);
    g_assert_true(template_file_open(dir, "t", &f, NULL));
    g_assert_nonnull(f);
    t = template_file_copy(f, 1);
    g_assert_nonnull(t);
    template_file_free(f);
    unlinkat(dir, name, 0);
    close(dir);
    rmdir(path);
    return t;
}

void copy_setup(CopyFixture *f, gconstpointer by_file)
{
    f->host = map();
    f->was = map();
    for (size_t i = 0; i < PAGES; i += 3) {
        if (i % 2) {
            copy_scribble(f->host + i * PAGE);
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

void copy_teardown(CopyFixture *f, G_GNUC_UNUSED gconstpointer data)
{
    ram_copy_free(f->t);
    munmap(f->host, LEN);
    munmap(f->was, LEN);
    g_free(f->dirty);
}

RamCopyCounts copy_restore(CopyFixture *f, bool leave_zeros)
{
    RamCopyCounts counts = { 0 };
    size_t words = ram_copy_words(f->t), mid = g_test_rand_int_range(0, words);

    f->turn++;
    ram_copy_restore(f->t, f->host, f->dirty, NULL, 0, mid, f->turn,
                     leave_zeros, &counts);
    ram_copy_restore(f->t, f->host, f->dirty, NULL, mid, words, f->turn,
                     leave_zeros, &counts);
    return counts;
}

void copy_write(CopyFixture *f, size_t page)
{
    copy_scribble(f->host + page * PAGE);
    bit_set(f->dirty, page);
}

void copy_clean(CopyFixture *f)
{
    memset(f->dirty, 0, ram_copy_words(f->t) * sizeof(f->dirty[0]));
}
