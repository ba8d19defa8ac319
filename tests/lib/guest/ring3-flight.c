/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Ring-3 test guest: work that tells at once if RAM and disk, or parts of
 * either, are not of one moment; see lib/inflight.
 *
 *   flight ADDR     never answers.  Says '!' when something is not as it was
 *                   left
 *
 * At ADDR lies the World, behind it the pages that are worked on.  The host
 * may write World.host and World.mode at any time.  It has given the devices
 * their addresses, so that only the host uses PCI's configuration ports.
 *
 * In each round all pages and some sectors get new content, made from one
 * number; before that they have to have what the last round has left.
 */

#include "ring3.h"
#include "../../../include/hw/misc/snapctl-regs.h"

/* also in lib/inflight */
#define DISK_PORT       0xb00       /* ring 3 may use it */
#define SNAPCTL_PLACE   0xf0000000
#define PAGES           48
#define MODE_SAVE       1
#define MODE_LOAD       2

/* Virtio's legacy interface, as in dma.py */
#define VIRTIO_QUEUE    8
#define VIRTIO_SIZE     12
#define VIRTIO_SELECT   14
#define VIRTIO_NOTIFY   16
#define VIRTIO_STATUS   18
#define VIRTIO_DRIVER   3
#define VIRTIO_OK       7

/* The device's choice: tables of descriptors, available and used ones */
#define QUEUE_MAX       1024
#define AVAILABLE       (16 * QUEUE_MAX)
#define USED            (AVAILABLE + PAGE_SIZE)
#define QUEUE_PAGES     8
#define BLK_IN          0
#define BLK_OUT         1
#define BLK_FLUSH       4
#define NEXT            1
#define DEVICE_WRITES   2

#define SECTOR          512
#define RUNS            4
#define RUN_SECTORS     8
#define RUN_BYTES       (RUN_SECTORS * SECTOR)
/* Sectors from a run to the next: each has a cluster of its own */
#define RUN_STEP        3001

/* When a request is given up and asked for again: after both */
#define LOOKS           1000
#define TICKS           (1ull << 32)

typedef struct World {
    uint64_t beat;      /* rounds since the guest was started */
    uint64_t host;      /* the host's name for this world */
    uint64_t mode;      /* what to ask snapctl for; from bit 8 on a mask, the
                           more bits the more seldom; from bit 16 on how often
                           again */
    uint64_t seed;      /* of what pages and sectors have now */
    uint64_t written;   /* World.host, as pages and sectors have it */
    uint64_t bad;       /* where the guest found what it had not left */
    uint64_t retries;   /* of requests to the disk */
} World;

typedef struct Descriptor {
    uint64_t addr;
    uint32_t len;
    uint16_t flags, next;
} Descriptor;

typedef struct Request {
    uint32_t type, priority;
    uint64_t sector;
    uint8_t status;
} Request;

static uint8_t queue[QUEUE_PAGES * PAGE_SIZE]
    __attribute__((aligned(PAGE_SIZE)));
static Request requests[RUNS];
static uint8_t buffers[RUNS][RUN_BYTES] __attribute__((aligned(PAGE_SIZE)));
static uint16_t submitted;

static inline void outw(uint16_t port, uint16_t value)
{
    asm volatile("outw %0, %1" : : "a"(value), "Nd"(port));
}

static void disk_start(void)
{
    uint8_t *p = queue;

    outb(DISK_PORT + VIRTIO_STATUS, 0);
    for (size_t i = 0; i < sizeof(queue); i++) {
        p[i] = 0;
    }
    submitted = 0;
    outb(DISK_PORT + VIRTIO_STATUS, VIRTIO_DRIVER);
    outw(DISK_PORT + VIRTIO_SELECT, 0);
    outl(DISK_PORT + VIRTIO_QUEUE, (uintptr_t)queue / PAGE_SIZE);
    outb(DISK_PORT + VIRTIO_STATUS, VIRTIO_OK);
}

static void submit(unsigned run, uint32_t type)
{
    Descriptor *d = (Descriptor *)queue + 3 * run;
    volatile uint16_t *available = (uint16_t *)(queue + AVAILABLE);
    Request *r = &requests[run];
    bool data = type != BLK_FLUSH;

    *r = (Request) { type, 0, data ? 1 + run * RUN_STEP : 0, 0xff };
    d[0] = (Descriptor) { (uintptr_t)r, 16, NEXT, 3 * run + (data ? 1 : 2) };
    d[1] = (Descriptor) { (uintptr_t)buffers[run], RUN_BYTES,
                          type == BLK_IN ? NEXT | DEVICE_WRITES : NEXT,
                          3 * run + 2 };
    d[2] = (Descriptor) { (uintptr_t)&r->status, 1, DEVICE_WRITES, 0 };
    available[2 + submitted % QUEUE_MAX] = 3 * run;
    __sync_synchronize();
    available[1] = ++submitted;
}

static bool all_used(void)
{
    volatile uint16_t *used = (uint16_t *)(queue + USED);

    return used[1] == submitted;
}

/* Whether all have been done */
static bool wait_used(void)
{
    uint64_t begin = ticks();

    for (unsigned i = 0; i < LOOKS || ticks() - begin < TICKS; i++) {
        if (all_used()) {
            __sync_synchronize();
            return true;
        }
        if (inb(DISK_PORT + VIRTIO_STATUS) != VIRTIO_OK) {
            return false;
        }
    }
    return false;
}

static bool disk_try(uint32_t type)
{
    unsigned count = type == BLK_FLUSH ? 1 : RUNS;

    if (inb(DISK_PORT + VIRTIO_STATUS) != VIRTIO_OK) {
        disk_start();
    }
    for (unsigned i = 0; i < count; i++) {
        submit(i, type);
    }
    outw(DISK_PORT + VIRTIO_NOTIFY, 0);
    if (!wait_used()) {
        disk_start();
        return false;
    }
    for (unsigned i = 0; i < count; i++) {
        if (((volatile Request *)requests)[i].status) {
            return false;
        }
    }
    return true;
}

/* Others reset the device, or make it fail, at any time */
static void disk_do(volatile World *w, uint32_t type)
{
    while (!disk_try(type)) {
        w->retries++;
    }
}

static uint64_t *page(volatile World *w, unsigned i)
{
    return (uint64_t *)((uintptr_t)w + (1 + i) * PAGE_SIZE);
}

/* The word at @place in the world of @w; half of the pages are 0 */
static uint64_t word(volatile World *w, uint64_t place)
{
    uint64_t x = mix(w->seed ^ mix(w->written) ^ (place & -PAGE_SIZE));

    return x & 1 ? mix(x ^ place) : 0;
}

static void work_on_pages(volatile World *w)
{
    for (unsigned i = 0; i < PAGES; i++) {
        uint64_t *p = page(w, i);

        for (unsigned j = 0; j < PAGE_SIZE / 8; j += 32) {
            p[j] = word(w, (uintptr_t)&p[j]);
        }
    }
}

static void work_on_sectors(volatile World *w)
{
    for (unsigned i = 0; i < RUNS; i++) {
        uint64_t *p = (uint64_t *)buffers[i];

        for (unsigned j = 0; j < RUN_BYTES / 8; j++) {
            p[j] = word(w, (i * RUN_BYTES + j) * 8);
        }
    }
}

static uint64_t bad_page(volatile World *w)
{
    for (unsigned i = 0; i < PAGES; i++) {
        uint64_t *p = page(w, i);

        for (unsigned j = 0; j < PAGE_SIZE / 8; j += 32) {
            if (p[j] != word(w, (uintptr_t)&p[j])) {
                return (uintptr_t)&p[j];
            }
        }
    }
    return 0;
}

/* The sectors' numbers, from 1 on */
static uint64_t bad_sector(volatile World *w)
{
    for (unsigned i = 0; i < RUNS; i++) {
        uint64_t *p = (uint64_t *)buffers[i];

        for (unsigned j = 0; j < RUN_BYTES / 8; j++) {
            if (p[j] != word(w, (i * RUN_BYTES + j) * 8)) {
                return 1 + i * RUN_STEP + j * 8 / SECTOR;
            }
        }
    }
    return 0;
}

static void complain(volatile World *w, const char *what, uint64_t where)
{
    w->bad = where;
    put_char('!');
    answer(what, where);
}

static uint32_t snapctl_read(uint64_t offset)
{
    return *(volatile uint32_t *)(SNAPCTL_PLACE + offset);
}

/* If the device is there; slots 0 and 1; some times without a pause */
static void ask(volatile World *w)
{
    uint64_t x = mix(w->seed);

    if (x & w->mode & 0xff00) {
        return;
    }
    for (uint64_t i = 0; i <= (w->mode >> 16 & 0xff); i++) {
        uint64_t mode = w->mode;
        uint32_t command = x >> 16 & 1 ? SNAPCTL_COMMAND_SAVE
                                       : SNAPCTL_COMMAND_LOAD;

        if (!(mode & command)) {
            command ^= SNAPCTL_COMMAND_SAVE | SNAPCTL_COMMAND_LOAD;
        }
        if (!(mode & command) ||
            snapctl_read(SNAPCTL_MAGIC) != SNAPCTL_MAGIC_VALUE) {
            return;
        }
        *(volatile uint64_t *)(SNAPCTL_PLACE + SNAPCTL_SLOT) =
            (uint64_t)command << 32 | (x >> 17 & 1);
        while (snapctl_read(SNAPCTL_STATUS) == SNAPCTL_STATUS_PENDING) {
            asm volatile("pause");
        }
        x = mix(x + ticks());
    }
}

static bool do_round(volatile World *w)
{
    uint64_t where = bad_page(w);

    if (where) {
        complain(w, "page", where);
        return false;
    }
    disk_do(w, BLK_IN);
    where = bad_sector(w);
    if (where) {
        complain(w, "sector", where);
        return false;
    }
    w->written = w->host;
    w->seed = mix(w->seed + ticks());
    work_on_pages(w);
    work_on_sectors(w);
    disk_do(w, BLK_OUT);
    if (!(w->seed & 3)) {
        disk_do(w, BLK_FLUSH);
    }
    w->beat++;
    ask(w);
    return true;
}

void flight(uint64_t addr)
{
    volatile World *w = (volatile World *)addr;

    w->seed = 0;
    w->written = 0;
    disk_start();
    work_on_pages(w);
    work_on_sectors(w);
    disk_do(w, BLK_OUT);
    while (do_round(w)) {
    }
}
