/*
 * Unit tests for stored pages, also when there is no memory
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <sys/auxv.h>
#include "emulator.h"
#include "faults.h"
#include "page-model.h"

#define PAGE 4096
#define CHUNK (2 << 20)
#define MAX_PAGES 9000

static const uint8_t *page_of(unsigned n)
{
    static uint8_t page[PAGE];

    memset(page, n, sizeof(page));
    memcpy(page, &n, sizeof(n));
    return page;
}

static void assert_page(const PagePool *pool, PageRef ref, unsigned n)
{
    g_assert_cmpint(memcmp(page_pool_page(pool, ref), page_of(n), PAGE), ==, 0);
}

/* In random order: chunks fill, become free and are used again */
static void test_random(void)
{
    enum { MAX = 3000 };
    PagePool *pool = page_pool_new(PAGE);
    g_autofree PageRef *refs = g_new0(PageRef, MAX);
    g_autofree unsigned *counts = g_new0(unsigned, MAX);
    uint64_t pages = 0;

    for (unsigned round = 0; round < 60000; round++) {
        unsigned i = g_test_rand_int_range(0, MAX);
        /* Mostly put at first, then mostly released */
        bool more = g_test_rand_int_range(0, 10) < (round < 20000 ? 7 : 4);

        if (!counts[i] && more) {
            refs[i] = page_pool_put(pool, page_of(i));
            g_assert_true(page_ref_stored(refs[i]));
            counts[i]++;
            pages++;
        } else if (more) {
            page_pool_ref(pool, refs[i]);
            counts[i]++;
        } else if (counts[i]) {
            assert_page(pool, refs[i], i);
            g_assert_cmpuint(page_pool_refs(pool, refs[i]), ==, counts[i]);
            page_pool_unref(pool, refs[i]);
            pages -= !--counts[i];
        }
        g_assert_cmpuint(page_pool_pages(pool), ==, pages);
        g_assert_cmpuint(page_pool_bytes(pool), >=, pages * PAGE);
    }
    for (unsigned i = 0; i < MAX; i++) {
        while (counts[i]--) {
            assert_page(pool, refs[i], i);
            page_pool_unref(pool, refs[i]);
        }
    }
    g_assert_cmpuint(page_pool_pages(pool), ==, 0);
    g_assert_cmpuint(page_pool_bytes(pool), <, PAGE);
    page_pool_free(pool);
}

/* Mapped memory goes back with the last page of a chunk */
static void test_unmaps(void)
{
    PagePool *pool = page_pool_new(CHUNK / 2);
    g_autofree uint8_t *page = g_malloc0(CHUNK / 2);
    PageRef refs[6];

    for (size_t i = 0; i < G_N_ELEMENTS(refs); i++) {
        refs[i] = page_pool_put(pool, page);
    }
    g_assert_cmpuint(page_pool_bytes(pool), >=, 3 * CHUNK);
    for (size_t i = 0; i < G_N_ELEMENTS(refs); i++) {
        const uint8_t *at = page_pool_page(pool, refs[i]);
        unsigned char resident;

        page_pool_unref(pool, refs[i]);
        if (i % 2) {
            /* Not mapped any more */
            g_assert_cmpint(mincore((void *)at, PAGE, &resident), ==, -1);
            g_assert_cmpint(errno, ==, ENOMEM);
        }
        g_assert_cmpuint(page_pool_bytes(pool), <,
                         (3 - (i + 1) / 2) * CHUNK + PAGE);
    }
    page_pool_free(pool);
}

static bool host_has_small_pages(void)
{
    return getauxval(AT_PAGESZ) == PAGE;
}

/* Memory is there before pages are, and takes no more room afterwards */
static void test_prepare(void)
{
    enum { NR = CHUNK / PAGE + 1 };
    PagePool *pool = page_pool_new(PAGE);
    g_autofree PageRef *refs = g_new0(PageRef, NR);
    unsigned char resident[NR] = { 0 };
    unsigned present = 0;
    uint64_t bytes;

    if (emulator_lacks("MADV_POPULATE_WRITE")) {
        page_pool_free(pool);
        return;
    }
    g_assert_false(page_pool_prepare(pool, 0));
    refs[0] = page_pool_put(pool, page_of(0));
    g_assert_true(page_pool_prepare(pool, 1));
    bytes = page_pool_bytes(pool);
    g_assert_cmpint(mincore((void *)page_pool_page(pool, refs[0]), CHUNK,
                            resident), ==, 0);
    for (unsigned i = 0; i < NR; i++) {
        present += resident[i] & 1;
    }
    /* All pages of a host but those around the first slot */
    g_assert_cmpuint(present, >=, host_has_small_pages() ? NR - 17 : 31);
    g_assert_false(page_pool_prepare(pool, CHUNK / PAGE - 1));
    for (unsigned i = 1; i < CHUNK / PAGE; i++) {
        refs[i] = page_pool_put(pool, page_of(i));
        assert_page(pool, refs[i], i);
    }
    g_assert_cmpuint(page_pool_bytes(pool), ==, bytes);
    g_assert_true(page_pool_prepare(pool, 1));
    g_assert_false(page_pool_prepare(pool, 1));
    bytes = page_pool_bytes(pool);
    refs[NR - 1] = page_pool_put(pool, page_of(NR - 1));
    g_assert_cmpuint(page_pool_bytes(pool), ==, bytes);
    for (unsigned i = 0; i < NR; i++) {
        page_pool_unref(pool, refs[i]);
    }
    g_assert_cmpuint(page_pool_bytes(pool), <, PAGE);
    page_pool_free(pool);
}

/* Places and numbers of released pages are used again */
static void test_reuses(void)
{
    enum { NR = CHUNK / PAGE + 1, LIVE = 3 * NR };
    PagePool *pool = page_pool_new(PAGE);
    g_autofree PageRef *refs = g_new0(PageRef, LIVE);
    uint64_t bytes;

    for (unsigned i = 0; i < LIVE; i++) {
        refs[i] = page_pool_put(pool, page_of(i));
    }
    bytes = page_pool_bytes(pool);
    /* Some of a full chunk */
    for (unsigned i = 0; i < NR / 2; i++) {
        page_pool_unref(pool, refs[i]);
    }
    g_assert_cmpuint(page_pool_bytes(pool), ==, bytes);
    for (unsigned i = 0; i < NR / 2; i++) {
        refs[i] = page_pool_put(pool, page_of(i));
    }
    g_assert_cmpuint(page_pool_bytes(pool), ==, bytes);
    /* All chunks, one after the other, many times */
    for (unsigned i = 0; i < 30 * LIVE; i++) {
        page_pool_unref(pool, refs[i % LIVE]);
        refs[i % LIVE] = page_pool_put(pool, page_of(i % LIVE));
        g_assert_cmpuint(page_pool_bytes(pool), ==, bytes);
    }
    for (unsigned i = 0; i < LIVE; i++) {
        assert_page(pool, refs[i], i);
        page_pool_unref(pool, refs[i]);
    }
    page_pool_free(pool);
}

/* Numbers of released chunks are used again, so that the table does not grow */
static void test_numbers(void)
{
    PagePool *pool = page_pool_new(CHUNK);
    g_autofree uint8_t *page = g_malloc0(CHUNK);
    PageRef refs[3] = { 0 };
    uint64_t bytes = 0;

    for (size_t i = 0; i < 100; i++) {
        PageRef *ref = &refs[i % G_N_ELEMENTS(refs)];

        if (i == G_N_ELEMENTS(refs)) {
            bytes = page_pool_bytes(pool);
        }
        page_pool_unref(pool, *ref);
        *ref = page_pool_put(pool, page);
        if (bytes) {
            g_assert_cmpuint(page_pool_bytes(pool), ==, bytes);
        }
    }
    for (size_t i = 0; i < G_N_ELEMENTS(refs); i++) {
        page_pool_unref(pool, refs[i]);
    }
    page_pool_free(pool);
}

/* Pages of a chunk's size, whose table then grows */
static void test_large_pages(void)
{
    enum { NR = 40 };
    PagePool *pool = page_pool_new(CHUNK);
    g_autofree uint8_t *page = g_malloc0(CHUNK);
    PageRef refs[NR];
    unsigned failed = 0;

    for (unsigned i = 0; i < NR; i++) {
        page[CHUNK - 1] = i;
        for (unsigned nth = 1; ; nth++) {
            uint64_t bytes = page_pool_bytes(pool);

            faults_arm(FAULT_TRY_MALLOC, nth, ENOMEM, FAULT_ONCE);
            refs[i] = page_pool_put(pool, page);
            if (!faults_disarm()) {
                break;
            }
            failed++;
            g_assert_cmpuint(refs[i], ==, PAGE_NO_MEMORY);
            g_assert_cmpuint(page_pool_pages(pool), ==, i);
            /* The table stays if only the chunk had no memory */
            g_assert_cmpuint(page_pool_bytes(pool), <=, bytes + PAGE);
        }
    }
    /* One for each chunk, and the table was enlarged three times */
    g_assert_cmpuint(failed, ==, NR + 3);
    for (unsigned i = 0; i < NR; i++) {
        g_assert_cmpuint(page_pool_page(pool, refs[i])[CHUNK - 1], ==, i);
        page_pool_unref(pool, refs[i]);
    }
    page_pool_free(pool);
}

static void test_not_unmapped(void)
{
    PagePool *pool = page_pool_new(PAGE);
    PageRef ref = page_pool_put(pool, page_of(1));
    uint64_t bytes = page_pool_bytes(pool);

    faults_arm(FAULT_MUNMAP, 1, ENOMEM, FAULT_ONCE);
    page_pool_unref(pool, ref);
    g_assert_cmpuint(page_pool_pages(pool), ==, 0);
    g_assert_cmpuint(page_pool_bytes(pool), ==, bytes - PAGE);
    for (unsigned i = 0; i < 2; i++) {
        ref = page_pool_put(pool, page_of(2));
        assert_page(pool, ref, 2);
        g_assert_cmpuint(page_pool_bytes(pool), ==, bytes);
        page_pool_unref(pool, ref);
        g_assert_cmpuint(page_pool_bytes(pool), <, bytes - PAGE);
    }
    page_pool_free(pool);
    /* Unmaps the same once more, which is no error */
    g_assert_cmpuint(faults_disarm(), ==, 1);
}

/* Misuse number @n, which ends the program; none if there is no such */
static void misuse(unsigned n)
{
    PagePool *pool = page_pool_new(PAGE);
    PageRef kept = page_pool_put(pool, page_of(1));
    PageRef ref = page_pool_put(pool, page_of(2));
    PageTree *t = page_tree_new(pool, 33);

    page_pool_unref(pool, ref);
    switch (n) {
    case 0:
        page_pool_unref(pool, ref);
        break;
    case 1:
        page_pool_ref(pool, ref);
        break;
    case 2:
        page_pool_unref(pool, kept);
        page_pool_unref(pool, kept);
        break;
    case 3:
        page_pool_page(pool, PAGE_ZERO);
        break;
    case 4:
        page_tree_free(t);
        page_pool_free(pool);
        break;
    case 5:
        page_pool_unref(pool, kept);
        page_pool_free(pool);
        break;
    case 6:
        page_tree_get(t, 33);
        break;
    default:
        page_pool_unref(pool, kept);
        page_tree_free(t);
        page_pool_free(pool);
        break;
    }
}

#define MISUSES 7

static void test_misuse(gconstpointer n)
{
    if (g_test_subprocess()) {
        misuse(GPOINTER_TO_UINT(n));
        return;
    }
    if (emulator_lacks("the end of a child by abort()")) {
        return;
    }
    g_test_trap_subprocess(NULL, 0, G_TEST_SUBPROCESS_DEFAULT);
    if (GPOINTER_TO_UINT(n) == MISUSES) {
        g_test_trap_assert_passed();
    } else {
        g_test_trap_assert_failed();
        g_test_trap_assert_stderr("*ssertion*failed*");
    }
}

/* Changes of two trees, each of which needs memory in a way of its own */

#define FAULT_SETS 48
#define FAULT_PAGE (16 * 1024)

static void *fault_setup(G_GNUC_UNUSED const void *param)
{
    return g_new0(PageModel *, 1);
}

/* Change number @i: the second half changes the copy, and removes pages too */
static bool fault_set(PageModel *m, unsigned i)
{
    bool second = i >= FAULT_SETS / 2;

    if (second && i % 3 == 0) {
        return page_model_set(m, 1, (i - FAULT_SETS / 2) * 3, PAGE_AS_BASE);
    }
    /* Pages of one table, and of many */
    return page_model_set(m, second, (i % 2 ? i * 1777 : i * 3) % MAX_PAGES,
                     page_model_put(m));
}

static bool fault_run(void *opaque)
{
    PageModel *m = page_model_new(MAX_PAGES, FAULT_PAGE);
    uint64_t pages, bytes;

    *(PageModel **)opaque = m;
    for (unsigned i = 0; i < FAULT_SETS; i++) {
        if (i == FAULT_SETS / 2) {
            page_model_copy(m, 0, 1);
        }
        pages = page_pool_pages(m->pool);
        bytes = page_pool_bytes(m->pool);
        if (!fault_set(m, i)) {
            g_assert_cmpuint(page_pool_pages(m->pool), ==, pages);
            /* The place of the page may stay, or the first table of chunks */
            bytes = page_pool_bytes(m->pool) - bytes;
            g_assert_true(i ? bytes == 0 || bytes == FAULT_PAGE
                            : bytes < PAGE);
            return false;
        }
    }
    return true;
}

static void fault_check(void *opaque, G_GNUC_UNUSED bool ok)
{
    PageModel **m = opaque;

    page_model_check(*m);
    g_clear_pointer(m, page_model_free);
}

static void test_no_memory(void)
{
    static const FaultTest test = {
        fault_setup, fault_run, fault_check, g_free,
    };
    static const FaultKind seen[] = {
        FAULT_MADVISE, FAULT_MMAP, FAULT_TRY_MALLOC, FAULT_KINDS,
    };

    faults_sweep("page tree", &test, NULL);
    faults_assert_seen(seen);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/page-pool/random", test_random);
    g_test_add_func("/page-pool/unmaps", test_unmaps);
    g_test_add_func("/page-pool/reuses", test_reuses);
    g_test_add_func("/page-pool/numbers", test_numbers);
    g_test_add_func("/page-pool/large-pages", test_large_pages);
    g_test_add_func("/page-pool/prepare", test_prepare);
    g_test_add_func("/page-pool/not-unmapped", test_not_unmapped);
    for (unsigned n = 0; n <= MISUSES; n++) {
        g_autofree char *path = g_strdup_printf("/page-pool/misuse/%u", n);

        g_test_add_data_func(path, GUINT_TO_POINTER(n), test_misuse);
    }
    g_test_add_func("/page-pool/no-memory", test_no_memory);
    return g_test_run();
}
