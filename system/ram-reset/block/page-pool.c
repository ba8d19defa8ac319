/*
 * Stored pages of a RAM block, each with a count of its references
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset/block/page-pool.h"

#define CHUNK_SIZE (2u << 20)
#define FIRST_STORED (PAGE_ZERO + 1)
#define NO_SLOT UINT32_MAX
/* Pages of arm64 and ppc64 hosts may have so many bytes */
#define HOST_PAGE_MAX (64u << 10)

/* Linux 5.14; headers of the C library may be older */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* @count: 0 if free; @next: the next free slot of the chunk, or NO_SLOT */
typedef struct PoolSlot {
    uint32_t count, next;
} PoolSlot;

/*
 * @link: in the pool's list, if a slot is free; @used: slots in use; @touched:
 * slots from here on were never used; @backed: slots from here on have no
 * memory, never less than @touched; @free: list of other free slots
 */
typedef struct PoolChunk {
    GList link;
    uint8_t *mem;
    uint32_t number, used, touched, backed, free;
    PoolSlot slots[];
} PoolChunk;

/*
 * @shift: a page's number is its chunk's number shifted by this, and its slot;
 * @chunks: by number, with NULL for unused ones, of which none is below @unused
 */
struct PagePool {
    size_t page_size;
    unsigned shift;
    PoolChunk **chunks;
    uint32_t nr_chunks, max_chunks, unused;
    GQueue available;
    uint64_t pages, bytes, tables;
};

static uint32_t pool_slots(const PagePool *pool)
{
    return 1u << pool->shift;
}

static size_t pool_map_len(const PagePool *pool)
{
    return pool->page_size << pool->shift;
}

static size_t pool_chunk_size(const PagePool *pool)
{
    return sizeof(PoolChunk) + pool_slots(pool) * sizeof(PoolSlot);
}

PagePool *page_pool_new(size_t page_size)
{
    PagePool *pool = g_new0(PagePool, 1);

    assert(page_size && !(page_size & (page_size - 1)));
    pool->page_size = page_size;
    while (pool_map_len(pool) < CHUNK_SIZE) {
        pool->shift++;
    }
    /* The last chunk would have the number PAGE_NO_MEMORY */
    pool->max_chunks = (UINT32_MAX - FIRST_STORED) >> pool->shift;
    g_queue_init(&pool->available);
    pool->bytes = sizeof(*pool);
    return pool;
}

static void pool_chunk_forget(PagePool *pool, PoolChunk *c)
{
    g_queue_unlink(&pool->available, &c->link);
    pool->bytes -= pool_chunk_size(pool) +
                   (uint64_t)c->backed * pool->page_size;
    pool->chunks[c->number] = NULL;
    pool->unused = MIN(pool->unused, c->number);
    g_free(c);
}

/* Return unused memory; false if the kernel refuses to, and @c has to stay */
static bool pool_chunk_free(PagePool *pool, PoolChunk *c)
{
    if (munmap(c->mem, pool_map_len(pool))) {
        return false;
    }
    pool_chunk_forget(pool, c);
    return true;
}

void page_pool_free(PagePool *pool)
{
    if (!pool) {
        return;
    }
    assert(!pool->pages && !pool->tables);
    for (uint32_t i = 0; i < pool->nr_chunks; i++) {
        /* Memory that the kernel did not take back may be refused again */
        if (pool->chunks[i] && !pool_chunk_free(pool, pool->chunks[i])) {
            g_free(pool->chunks[i]);
        }
    }
    g_free(pool->chunks);
    g_free(pool);
}

/* Sets pool->unused to the number of an unused chunk */
static bool pool_find_unused(PagePool *pool)
{
    uint32_t nr = MIN(pool->max_chunks, MAX(16, (uint64_t)pool->nr_chunks * 2));
    PoolChunk **chunks;

    while (pool->unused < pool->nr_chunks && pool->chunks[pool->unused]) {
        pool->unused++;
    }
    if (pool->unused < pool->nr_chunks) {
        return true;
    }
    if (pool->nr_chunks == pool->max_chunks) {
        return false;
    }
    chunks = g_try_malloc0(nr * sizeof(*chunks));
    if (!chunks) {
        return false;
    }
    if (pool->nr_chunks) {
        memcpy(chunks, pool->chunks, pool->nr_chunks * sizeof(*chunks));
    }
    g_free(pool->chunks);
    pool->chunks = chunks;
    pool->bytes += (nr - pool->nr_chunks) * sizeof(*chunks);
    pool->nr_chunks = nr;
    return true;
}

static uint8_t *pool_map(const PagePool *pool)
{
    size_t len = pool_map_len(pool);
    uint8_t *mem = mmap(NULL, len, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (mem == MAP_FAILED) {
        return NULL;
    }
    /* A refusal is not an error */
    madvise(mem, len, MADV_DONTDUMP);
    madvise(mem, len, MADV_DONTFORK);
    madvise(mem, len, MADV_NOHUGEPAGE);
    return mem;
}

static PoolChunk *pool_chunk_new(PagePool *pool)
{
    PoolChunk *c;

    if (!pool_find_unused(pool)) {
        return NULL;
    }
    c = g_try_malloc0(pool_chunk_size(pool));
    if (!c) {
        return NULL;
    }
    c->mem = pool_map(pool);
    if (!c->mem) {
        g_free(c);
        return NULL;
    }
    c->link.data = c;
    c->number = pool->unused;
    c->free = NO_SLOT;
    pool->chunks[c->number] = c;
    pool->bytes += pool_chunk_size(pool);
    g_queue_push_head_link(&pool->available, &c->link);
    return c;
}

static uint32_t pool_take_slot(PagePool *pool, PoolChunk *c)
{
    uint32_t slot = c->free;

    if (slot != NO_SLOT) {
        c->free = c->slots[slot].next;
    } else {
        slot = c->touched++;
    }
    if (c->touched > c->backed) {
        c->backed = c->touched;
        pool->bytes += pool->page_size;
    }
    assert(slot < pool_slots(pool) && !c->slots[slot].count);
    c->slots[slot].count = 1;
    c->used++;
    if (c->used == pool_slots(pool)) {
        g_queue_unlink(&pool->available, &c->link);
    }
    return slot;
}

PageRef page_pool_put(PagePool *pool, const uint8_t *page)
{
    PoolChunk *c = g_queue_peek_head(&pool->available);
    uint32_t slot;

    c = c ?: pool_chunk_new(pool);
    if (!c) {
        return PAGE_NO_MEMORY;
    }
    slot = pool_take_slot(pool, c);
    memcpy(c->mem + slot * pool->page_size, page, pool->page_size);
    pool->pages++;
    return FIRST_STORED + (c->number << pool->shift) + slot;
}

/* Back the slots of @c that have no memory; false if the kernel refuses */
static bool pool_back_chunk(PagePool *pool, PoolChunk *c)
{
    size_t start = c->backed * pool->page_size, len = pool_map_len(pool);
    size_t absent = (start + HOST_PAGE_MAX - 1) / HOST_PAGE_MAX * HOST_PAGE_MAX;

    if (absent < len &&
        madvise(c->mem + absent, len - absent, MADV_POPULATE_WRITE)) {
        return false;
    }
    pool->bytes += len - start;
    c->backed = pool_slots(pool);
    return true;
}

bool page_pool_prepare(PagePool *pool, uint64_t pages)
{
    uint64_t ready = 0;

    for (GList *l = pool->available.head; l; l = l->next) {
        const PoolChunk *c = l->data;

        ready += c->backed - c->used;
    }
    if (ready < pages) {
        PoolChunk *c = g_queue_peek_head(&pool->available);

        c = c && c->backed < pool_slots(pool) ? c : pool_chunk_new(pool);
        return c && pool_back_chunk(pool, c);
    }
    return false;
}

/* The chunk of a page that is in use */
static PoolChunk *pool_find(const PagePool *pool, PageRef ref, uint32_t *slot)
{
    uint32_t n = ref - FIRST_STORED;
    PoolChunk *c;

    assert(page_ref_stored(ref) && n >> pool->shift < pool->nr_chunks);
    c = pool->chunks[n >> pool->shift];
    *slot = n & (pool_slots(pool) - 1);
    assert(c && c->slots[*slot].count);
    return c;
}

void page_pool_ref(PagePool *pool, PageRef ref)
{
    uint32_t slot;
    PoolChunk *c;

    if (ref == PAGE_AS_BASE || ref == PAGE_ZERO) {
        return;
    }
    c = pool_find(pool, ref, &slot);
    assert(c->slots[slot].count < UINT32_MAX);
    c->slots[slot].count++;
}

/* The kernel may have no memory to split a mapping: reuse the chunk later */
static void pool_chunk_empty(PagePool *pool, PoolChunk *c)
{
    if (pool_chunk_free(pool, c)) {
        return;
    }
    if (madvise(c->mem, pool_map_len(pool), MADV_DONTNEED)) {
        pool_chunk_forget(pool, c);
        return;
    }
    pool->bytes -= (uint64_t)c->backed * pool->page_size;
    c->touched = c->backed = 0;
    c->free = NO_SLOT;
}

void page_pool_unref(PagePool *pool, PageRef ref)
{
    uint32_t slot;
    PoolChunk *c;

    if (ref == PAGE_AS_BASE || ref == PAGE_ZERO) {
        return;
    }
    c = pool_find(pool, ref, &slot);
    if (--c->slots[slot].count) {
        return;
    }
    pool->pages--;
    c->slots[slot].next = c->free;
    c->free = slot;
    if (c->used == pool_slots(pool)) {
        g_queue_push_head_link(&pool->available, &c->link);
    }
    c->used--;
    if (!c->used) {
        pool_chunk_empty(pool, c);
    }
}

const uint8_t *page_pool_page(const PagePool *pool, PageRef ref)
{
    uint32_t slot;
    PoolChunk *c = pool_find(pool, ref, &slot);

    return c->mem + slot * pool->page_size;
}

uint32_t page_pool_refs(const PagePool *pool, PageRef ref)
{
    uint32_t slot;

    return pool_find(pool, ref, &slot)->slots[slot].count;
}

uint64_t page_pool_pages(const PagePool *pool)
{
    return pool->pages;
}

uint64_t page_pool_bytes(const PagePool *pool)
{
    return pool->bytes + pool->tables;
}

void page_pool_add_tables(PagePool *pool, int64_t bytes)
{
    pool->tables += bytes;
}
