/*
 * Table of the parts of blocks that are mapped from a template
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset-flags.h"
#include "system/ram-reset/block/overlay-map.h"
#include "system/ram-reset/prim/ranges.h"

/*
 * @fd: the file, which a mapping keeps locked in any case; @runs: array of
 * PrimRange, without the parts taken out
 */
typedef struct Mapped {
    const void *host, *rb;
    int fd;
    GArray *runs;
    unsigned taken_out;
} Mapped;

static GMutex lock;

/*
 * Protected by @lock; all functions except overlay_map_*() are called with it
 * held
 */
static GArray *all_mapped;

static void update_any(void)
{
    __atomic_store_n(&ram_reset_flags.any_mapped, all_mapped->len > 0,
                     __ATOMIC_RELAXED);
}

static void mapped_clear(void *mapped)
{
    Mapped *m = mapped;

    if (m->fd >= 0) {
        close(m->fd);
    }
    g_array_unref(m->runs);
}

static Mapped *mapped_find(const void *host, const void *rb)
{
    for (unsigned i = 0; all_mapped && i < all_mapped->len; i++) {
        Mapped *m = &g_array_index(all_mapped, Mapped, i);

        if (m->host == host) {
            return !rb || m->rb == rb ? m : NULL;
        }
    }
    return NULL;
}

/* The first run of @m that ends behind @at */
static unsigned first_run(const Mapped *m, uint64_t at)
{
    unsigned low = 0, high = m->runs->len;

    while (low < high) {
        unsigned mid = (low + high) / 2;
        PrimRange run = g_array_index(m->runs, PrimRange, mid);

        if (run.start + run.len > at) {
            high = mid;
        } else {
            low = mid + 1;
        }
    }
    return low;
}

static bool mapped_touches(const Mapped *m, uint64_t start, uint64_t end)
{
    unsigned i = first_run(m, start);

    return i < m->runs->len &&
           g_array_index(m->runs, PrimRange, i).start < end;
}

static void mapped_cut(Mapped *m, uint64_t start, uint64_t end)
{
    GArray *left = prim_ranges_new();

    prim_ranges_add_within(left, m->runs, 0, start);
    prim_ranges_add_within(left, m->runs, end, UINT64_MAX);
    g_array_unref(m->runs);
    m->runs = left;
}

static unsigned count_cut(void)
{
    unsigned nr = 0;

    for (unsigned i = 0; i < all_mapped->len; i++) {
        nr += g_array_index(all_mapped, Mapped, i).taken_out;
    }
    return nr;
}

void overlay_map_add(const void *host, const void *rb, int fd,
                     const GArray *runs)
{
    Mapped m = {
        .host = host, .rb = rb, .fd = fcntl(fd, F_DUPFD_CLOEXEC, 0),
        .runs = g_array_copy((GArray *)runs),
    };

    g_mutex_lock(&lock);
    if (!all_mapped) {
        all_mapped = g_array_new(false, false, sizeof(Mapped));
        g_array_set_clear_func(all_mapped, mapped_clear);
    }
    g_array_append_val(all_mapped, m);
    update_any();
    g_mutex_unlock(&lock);
}

void overlay_map_remove(const void *host)
{
    Mapped *m;

    g_mutex_lock(&lock);
    m = mapped_find(host, NULL);
    if (m) {
        g_array_remove_index_fast(all_mapped, m - (Mapped *)all_mapped->data);
        update_any();
    }
    g_mutex_unlock(&lock);
}

int overlay_map_fd(void)
{
    int fd;

    g_mutex_lock(&lock);
    fd = all_mapped && all_mapped->len
         ? g_array_index(all_mapped, Mapped, 0).fd : -1;
    g_mutex_unlock(&lock);
    return fd;
}

bool overlay_map_is_of(const void *host, const void *rb, int fd)
{
    const Mapped *m;
    bool same;

    g_mutex_lock(&lock);
    m = mapped_find(host, rb);
    same = m && prim_is_same_file(m->fd, fd);
    g_mutex_unlock(&lock);
    return same;
}

bool overlay_map_has(const void *host, const void *rb)
{
    bool known;

    g_mutex_lock(&lock);
    known = mapped_find(host, rb);
    g_mutex_unlock(&lock);
    return known;
}

GArray *overlay_map_copy(const void *host, const void *rb)
{
    Mapped *m;
    GArray *runs;

    g_mutex_lock(&lock);
    m = mapped_find(host, rb);
    runs = m ? g_array_copy(m->runs) : NULL;
    g_mutex_unlock(&lock);
    return runs;
}

bool overlay_map_touches(const void *host, uint64_t start, uint64_t end)
{
    Mapped *m;
    bool touch;

    g_mutex_lock(&lock);
    m = mapped_find(host, NULL);
    touch = m && mapped_touches(m, start, end);
    g_mutex_unlock(&lock);
    return touch;
}

int overlay_map_cut(const void *host, const void *rb, uint64_t start,
                    uint64_t end, unsigned max,
                    int (*make)(void *opaque), void *opaque)
{
    int ret = -ENOMEM;
    Mapped *m;

    g_mutex_lock(&lock);
    m = mapped_find(host, rb);
    if (!m || !mapped_touches(m, start, end)) {
        ret = 1;
    } else if (count_cut() < max) {
        m->taken_out++;
        ret = make(opaque);
        if (ret >= 0) {
            mapped_cut(m, start, end);
            ret = 0;
        }
    }
    g_mutex_unlock(&lock);
    return ret;
}
