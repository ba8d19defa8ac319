/*
 * Unit tests for system/ram-reset/prim/watch.c
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <sys/auxv.h>
#include "system/ram-reset/prim/watch.h"

#define PAGES 2048

typedef struct Fixture {
    PrimWatch watch;
    size_t page;
    uint8_t *mem;
    bool seen[PAGES];
} Fixture;

static bool can_watch(void)
{
    PrimWatch w;

    if (prim_watch_open(&w) < 0) {
        return false;
    }
    prim_watch_close(&w);
    return true;
}

static uint8_t *map(size_t len)
{
    uint8_t *mem = mmap(NULL, len, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    g_assert_true(mem != MAP_FAILED);
    return mem;
}

/* @kind: bit 0: populated before; bit 1: by large pages, where there are any */
static void set_up(Fixture *f, const void *kind)
{
    int how = GPOINTER_TO_INT(kind);

    f->page = getauxval(AT_PAGESZ);
    f->mem = map(PAGES * f->page);
    if (how & 2) {
        madvise(f->mem, PAGES * f->page, MADV_HUGEPAGE);
    }
    if (how & 1) {
        memset(f->mem, 1, PAGES * f->page);
    }
    g_assert_cmpint(prim_watch_open(&f->watch), ==, 0);
    g_assert_cmpint(prim_watch_add(&f->watch, f->mem, PAGES * f->page), ==, 0);
}

static void tear_down(Fixture *f, const void *kind)
{
    prim_watch_close(&f->watch);
    munmap(f->mem, PAGES * f->page);
}

/* Number of pages of [@from, @to) that were written to, see @seen; or -errno */
static int look(Fixture *f, size_t from, size_t to)
{
    uintptr_t host = (uintptr_t)f->mem, start, end, last = 0;
    PrimWatchIter it = { .next = host + from * f->page };
    int ret, nr = 0;

    memset(f->seen, 0, sizeof(f->seen));
    while ((ret = prim_watch_next(&f->watch, &it, host + to * f->page, &start,
                                  &end)) > 0) {
        g_assert_cmpuint(start, >=, MAX(host + from * f->page, last));
        g_assert_cmpuint(end, <=, host + to * f->page);
        for (last = end; start < end; start += f->page, nr++) {
            f->seen[(start - host) / f->page] = true;
        }
    }
    return ret ?: nr;
}

static int look_at_all(Fixture *f)
{
    return look(f, 0, PAGES);
}

static void *write_in_thread(void *at)
{
    *(uint8_t *)at = 2;
    return NULL;
}

static void test_writers(Fixture *f, const void *kind)
{
    int pipes[2];

    g_assert_cmpint(look_at_all(f), ==, 0);
    g_thread_join(g_thread_new("w", write_in_thread, f->mem + 5 * f->page + 7));
    g_assert_cmpint(look_at_all(f), ==, 1);
    g_assert_true(f->seen[5]);
    g_assert_cmpint(pipe(pipes), ==, 0);
    g_assert_cmpint(write(pipes[1], "data", 4), ==, 4);
    g_assert_cmpint(read(pipes[0], f->mem + 10 * f->page - 2, 4), ==, 4);
    close(pipes[0]);
    close(pipes[1]);
    g_assert_cmpint(look_at_all(f), ==, 3);
    g_assert_true(f->seen[9] && f->seen[10]);
    g_assert_cmpint(f->mem[5 * f->page + 7], ==, 2);
}

static void test_reading_is_not_writing(Fixture *f, const void *kind)
{
    unsigned sum = 0;

    for (size_t i = 0; i < PAGES; i++) {
        sum += f->mem[i * f->page];
    }
    g_assert_cmpuint(sum, ==, GPOINTER_TO_INT(kind) & 1 ? PAGES : 0);
    g_assert_cmpint(look_at_all(f), ==, 0);
    f->mem[3 * f->page] = 2;
    g_assert_cmpint(look_at_all(f), ==, 1);
}

/* More ranges than one call of the kernel returns */
static void test_many(Fixture *f, const void *kind)
{
    for (int turn = 0; turn < 3; turn++) {
        for (size_t i = turn; i < PAGES; i += 2) {
            f->mem[i * f->page + i] = turn;
        }
        g_assert_cmpint(look_at_all(f), ==, (PAGES - turn + 1) / 2);
        for (size_t i = 0; i < PAGES; i++) {
            g_assert_cmpint(f->seen[i], ==,
                            i >= (size_t)turn && (i - turn) % 2 == 0);
        }
        g_assert_cmpint(look(f, PAGES / 4, PAGES / 2), ==, PAGES / 8);
        g_assert_cmpint(prim_watch_restart(&f->watch, f->mem, PAGES * f->page),
                        ==, 0);
        g_assert_cmpint(look_at_all(f), ==, 0);
    }
    memset(f->mem, 3, PAGES * f->page);
    g_assert_cmpint(look_at_all(f), ==, PAGES);
}

static void test_anew(Fixture *f, const void *kind)
{
    memset(f->mem + f->page, 2, 20 * f->page);
    g_assert_cmpint(prim_watch_restart(&f->watch, f->mem + 4 * f->page,
                                       8 * f->page), ==, 0);
    g_assert_cmpint(look_at_all(f), ==, 12);
    for (size_t i = 0; i < 30; i++) {
        g_assert_cmpint(f->seen[i], ==, (i > 0 && i < 4) || (i > 11 && i < 21));
    }
    f->mem[6 * f->page] = 3;
    g_assert_cmpint(look_at_all(f), ==, 13);
    g_assert_true(f->seen[6]);
}

/* The pages are written to, not clean */
static void test_other_memory_in_its_place(Fixture *f, const void *kind)
{
    g_assert_true(mmap(f->mem + 8 * f->page, f->page, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
                  MAP_FAILED);
    g_assert_cmpint(look(f, 0, 8), ==, 0);
    g_assert_cmpint(look_at_all(f), ==, -EPERM);
    g_assert_cmpint(prim_watch_restart(&f->watch, f->mem, PAGES * f->page), ==,
                    -EPERM);
}

static void test_paged_out(Fixture *f, const void *kind)
{
#ifdef MADV_PAGEOUT
    f->mem[3 * f->page] = 2;
    madvise(f->mem, PAGES * f->page, MADV_PAGEOUT);
#endif
    f->mem[4 * f->page] = 2;
    look_at_all(f);
    g_assert_true(f->seen[4]);
    g_assert_cmpint(f->mem[4 * f->page], ==, 2);
}

static void test_belongs_to_one(Fixture *f, const void *kind)
{
    PrimWatch other;

    g_assert_cmpint(prim_watch_open(&other), ==, 0);
    g_assert_cmpint(prim_watch_add(&other, f->mem, f->page), ==, -EBUSY);
    prim_watch_close(&other);
    f->mem[0] = 2;
    g_assert_cmpint(look_at_all(f), ==, 1);
    prim_watch_close(&f->watch);
    g_assert_cmpint(prim_watch_open(&f->watch), ==, 0);
    g_assert_cmpint(prim_watch_add(&f->watch, f->mem, f->page), ==, 0);
    g_assert_cmpint(look(f, 0, 1), ==, 0);
}

/* Like memory that is mapped from a template */
static void test_private_file(void)
{
    g_autofree char *name = NULL;
    size_t page = getauxval(AT_PAGESZ);
    int fd = g_file_open_tmp("ram-reset-XXXXXX", &name, NULL);
    Fixture f = { .page = page };

    g_assert_cmpint(fd, >=, 0);
    unlink(name);
    g_assert_cmpint(ftruncate(fd, PAGES * page), ==, 0);
    f.mem = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd,
                 0);
    g_assert_true(f.mem != MAP_FAILED);
    f.mem[page] = 1;
    g_assert_cmpint(prim_watch_open(&f.watch), ==, 0);
    g_assert_cmpint(prim_watch_add(&f.watch, f.mem, PAGES * page), ==, 0);
    g_assert_cmpint(f.mem[2 * page], ==, 0);
    g_assert_cmpint(look_at_all(&f), ==, 0);
    f.mem[page] = f.mem[2 * page] = f.mem[3 * page] = 2;
    g_assert_cmpint(look_at_all(&f), ==, 3);
    g_assert_true(f.seen[1] && f.seen[2] && f.seen[3]);
    tear_down(&f, NULL);
    close(fd);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(Fixture *f, const void *kind);
    } tests[] = {
        { "writers", test_writers },
        { "reading", test_reading_is_not_writing },
        { "many", test_many },
        { "anew", test_anew },
        { "other-memory", test_other_memory_in_its_place },
        { "paged-out", test_paged_out },
        { "one", test_belongs_to_one },
    };
    static const char *const kinds[] = {
        "empty", "populated", "empty-large", "large"
    };

    g_test_init(&argc, &argv, NULL);
    if (!can_watch()) {
        g_test_message("this kernel does not tell what is written");
        return g_test_run();
    }
    for (size_t k = 0; k < G_N_ELEMENTS(kinds); k++) {
        for (size_t i = 0; i < G_N_ELEMENTS(tests); i++) {
            g_autofree char *path = g_strdup_printf("/prim-watch/%s/%s",
                                                    tests[i].name, kinds[k]);

            g_test_add(path, Fixture, GINT_TO_POINTER(k), set_up,
                       tests[i].run, tear_down);
        }
    }
    g_test_add_func("/prim-watch/private-file", test_private_file);
    return g_test_run();
}
