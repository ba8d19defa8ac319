/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The ring of inputs and results that snapctl-harness, in the guest, and
 * ram-reset feed, on the host, share in the persistent region.
 *
 * The region is neither loaded nor reset: it has all data that must outlive an
 * iteration.  All numbers are little endian.
 *
 * @head and @tail only rise.  The host chooses their first value, and chooses
 * another one when it formats the ring again, so that the late result of an
 * earlier input is recognized.  Input number n is in entry n % entries.  The
 * host adds inputs while head - tail < entries, and publishes them by @head.
 * The guest takes number @tail, notes it in @begun, writes the result into the
 * same entry, and publishes it by @tail.  Only while the guest is stopped, the
 * host may do that in its place.
 *
 * Neither side trusts the other: each time, lengths are read once and compared
 * with the sizes, and the sizes with the region.
 */

#ifndef CONTRIB_SNAPCTL_RING_H
#define CONTRIB_SNAPCTL_RING_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the ring is written in little endian byte order"
#endif

#define RING_MAGIC          0x474e495250414e53ULL       /* "SNAPRING" */
#define RING_VERSION        1
#define RING_ALIGN          64
#define RING_MAX_ENTRIES    65536
#define RING_MAX_SIZE       (1U << 30)      /* of an input or output */

/* state of the guest */
#define RING_STATE_NONE     0
#define RING_STATE_READY    1       /* waits for an input */
#define RING_STATE_BUSY     2       /* runs TARGET */
#define RING_STATE_DONE     3       /* waits to be loaded */
#define RING_STATE_FAILED   4       /* has exited with an error message */

/* kind of a result */
#define RING_RESULT_NONE    0
#define RING_RESULT_EXITED  1       /* code is the exit status */
#define RING_RESULT_SIGNAL  2       /* code is the signal that has killed it */
#define RING_RESULT_TIMEOUT 3       /* was killed by the harness */
#define RING_RESULT_ERROR   4       /* could not be run; code is an errno */
#define RING_RESULT_HANG    5       /* host: no answer from the guest */
#define RING_RESULT_CRASH   6       /* host: the guest has crashed */
#define RING_RESULT_PANIC   7       /* host: the kernel has panicked */

struct ring_header {
    /* Written by the host; constant once magic is set */
    _Atomic uint64_t magic;
    _Atomic uint32_t version;
    _Atomic uint32_t entries;
    _Atomic uint32_t input_size;        /* room for an input, in bytes */
    _Atomic uint32_t output_size;
    uint8_t pad1[40];
    /* The host's */
    _Atomic uint64_t head;
    uint8_t pad2[56];
    /* The guest's */
    _Atomic uint64_t tail;
    _Atomic uint64_t begun;     /* tail + 1 while TARGET runs */
    _Atomic uint32_t state;
    uint8_t pad3[108];
};

/* Followed by the input and the output, each of them aligned to RING_ALIGN */
struct ring_entry {
    /* The host's */
    uint64_t number;
    _Atomic uint32_t input_len;
    /* The guest's */
    uint32_t kind;
    uint32_t code;
    uint32_t output_len;        /* stored bytes */
    uint64_t output_total;      /* bytes that TARGET has written */
    uint64_t run_ns;            /* run time of TARGET, by the guest's clock */
    uint64_t generation;        /* in which it ran */
    uint8_t pad[16];
};

static_assert(offsetof(struct ring_header, head) == 0x40, "layout");
static_assert(offsetof(struct ring_header, tail) == 0x80, "layout");
static_assert(sizeof(struct ring_header) == 0x100, "layout");
static_assert(sizeof(struct ring_entry) == RING_ALIGN, "layout");

/* A ring with checked copies of its sizes */
struct ring {
    struct ring_header *header;
    uint32_t entries;
    uint32_t input_size;
    uint32_t output_size;
};

static inline uint64_t ring_aligned(uint64_t size)
{
    return (size + RING_ALIGN - 1) / RING_ALIGN * RING_ALIGN;
}

static inline uint64_t ring_stride(const struct ring *r)
{
    return sizeof(struct ring_entry) + ring_aligned(r->input_size) +
           ring_aligned(r->output_size);
}

/* False if the region has no ring, or is too small for it */
static inline bool ring_open(struct ring *r, void *region, size_t size)
{
    struct ring_header *h = region;

    if (size < sizeof(*h) ||
        atomic_load_explicit(&h->magic, memory_order_acquire) != RING_MAGIC ||
        h->version != RING_VERSION) {
        return false;
    }
    r->header = h;
    r->entries = h->entries;
    r->input_size = h->input_size;
    r->output_size = h->output_size;
    return r->entries && r->entries <= RING_MAX_ENTRIES &&
           r->input_size <= RING_MAX_SIZE && r->output_size <= RING_MAX_SIZE &&
           ring_stride(r) <= (size - sizeof(*h)) / r->entries;
}

static inline struct ring_entry *ring_at(const struct ring *r, uint64_t number)
{
    return (struct ring_entry *)((char *)(r->header + 1) +
                                 number % r->entries * ring_stride(r));
}

static inline uint8_t *ring_input(struct ring_entry *e)
{
    return (uint8_t *)(e + 1);
}

static inline uint8_t *ring_output(const struct ring *r, struct ring_entry *e)
{
    return ring_input(e) + ring_aligned(r->input_size);
}

/* The guest's side: the number of the next input, if there is one */
static inline bool ring_next(const struct ring *r, uint64_t *number)
{
    uint64_t tail = atomic_load_explicit(&r->header->tail,
                                         memory_order_relaxed);
    uint64_t count = atomic_load_explicit(&r->header->head,
                                          memory_order_acquire) - tail;

    *number = tail;
    return count && count <= r->entries;
}

static inline void ring_begin(const struct ring *r, uint64_t number)
{
    atomic_store_explicit(&r->header->begun, number + 1, memory_order_release);
}

/* Whether the number is still the one to be completed */
static inline bool ring_is_current(const struct ring *r, uint64_t number)
{
    return atomic_load_explicit(&r->header->tail,
                                memory_order_relaxed) == number;
}

/*
 * Use no compare and exchange: the guest's kernel may have mapped the region
 * uncached, where a locked access stops all the host's processors.
 */
static inline void ring_complete(const struct ring *r, uint64_t number)
{
    atomic_store_explicit(&r->header->tail, number + 1, memory_order_release);
}

static inline void ring_set_state(const struct ring *r, uint32_t state)
{
    if (atomic_load_explicit(&r->header->state,
                             memory_order_relaxed) != state) {
        atomic_store_explicit(&r->header->state, state, memory_order_release);
    }
}

#endif
