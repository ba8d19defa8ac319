/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Ring-3 test guest: two CPUs against the host, see lib/two.py.
 *
 *   two ADDR PAGES EJECT PACE   never answers.  The second CPU saves and loads
 *                               by snapctl, the more seldom the more bits PACE
 *                               has, and has pairs in PAGES from ADDR on (see
 *                               ring3-snapctl.h).  The first one ejects slots
 *                               of the mask EJECT, and reprograms devices of
 *                               VICTIMS and their queues, which lie behind the
 *                               pages.  With bit 0 of EJECT it also writes
 *                               values that make loads of the snapshot fail.
 *                               Random numbers go on after a load: the host
 *                               sets Region.random
 *
 * The host reads Region.steps, and sets bits of Region.loads, as the first CPU
 * does: slots whose snapshots have other devices, which is what a load mostly
 * fails for.
 */

#include "ring3-snapctl.h"

/* also in lib/two.py */
#define FIRST_VICTIM    8
#define VICTIMS         8
#define HOME            0xc000
#define AWAY            0xd000
#define HOME_STEP       0x100
#define HOME_SIZE       0x40

/* QEMU's ACPI hardware, and the chipset's reset */
#define EJECT_PORT      0xae08
#define EJECT_BUS       0xae10
#define RESET_PORT      0xcf9
#define RESET_ALL       6

/* Virtio's legacy interface, as in ring3-flight.c */
#define VIRTIO_QUEUE    8
#define VIRTIO_SIZE     12
#define VIRTIO_SELECT   14
#define VIRTIO_NOTIFY   16
#define VIRTIO_STATUS   18
#define VIRTIO_OK       7
#define MIN_SIZE        8
#define MAX_SIZE        256
#define QUEUE_BYTES     (4 * PAGE_SIZE)
/* Requests that a device may leave alone, of a guest that is not wild */
#define MOST_WAITING    6
#define QUEUES          4       /* of each victim */
#define ALL_QUEUES      (QUEUES * VICTIMS)
/* Descriptors point into this, the longest of them not beyond */
#define DATA_BYTES      (1 << 20)
#define MOST_BYTES      0x4000

#define ALL_SLOTS       3

#define MEMORY_PLACE    0xe8000000u
#define MEMORY_BYTES    0x1000000u

typedef struct Two {
    Snapctl s;
    volatile Region *r;
    uint64_t addr, pages, eject, pace;
} Two;

typedef struct Descriptor {
    uint64_t addr;
    uint32_t len;
    uint16_t flags, next;
} Descriptor;

typedef struct Queue {
    Descriptor *descriptors;
    volatile uint16_t *available, *used;
    unsigned size;
} Queue;

static Two two;

static inline void outw(uint16_t port, uint16_t value)
{
    asm volatile("outw %0, %1" : : "a"(value), "Nd"(port));
}

static inline uint16_t inw(uint16_t port)
{
    uint16_t value;

    asm volatile("inw %1, %0" : "=a"(value) : "Nd"(port));
    return value;
}

static uint16_t home(unsigned victim)
{
    return HOME + HOME_STEP * victim;
}

static uint64_t queue_place(unsigned victim, unsigned queue)
{
    return two.addr + two.pages * PAGE_SIZE +
           (victim * QUEUES + queue % QUEUES) * QUEUE_BYTES;
}

static bool is_wild(void)
{
    return two.eject & 1;
}

/* False if the device is away, or has no such queue */
static bool find_queue(Queue *q, unsigned victim, unsigned queue)
{
    uint64_t place = queue_place(victim, queue);

    outw(home(victim) + VIRTIO_SELECT, queue % QUEUES);
    q->size = inw(home(victim) + VIRTIO_SIZE);
    q->descriptors = (Descriptor *)place;
    q->available = (uint16_t *)(place + 16 * q->size);
    q->used = (uint16_t *)(place + ((18 * q->size + 6 + PAGE_SIZE - 1) &
                                    -(uint64_t)PAGE_SIZE));
    return q->size >= MIN_SIZE && q->size <= MAX_SIZE;
}

/* A device that is reset begins at 0 in each queue */
static void set_queues(unsigned victim)
{
    Queue q;

    if (!is_wild()) {
        outb(home(victim) + VIRTIO_STATUS, 0);
    }
    for (unsigned i = 0; i < QUEUES; i++) {
        if (!find_queue(&q, victim, i)) {
            continue;
        }
        if (!is_wild()) {
            *(volatile uint32_t *)q.available = 0;
            *(volatile uint32_t *)q.used = 0;
        }
        outl(home(victim) + VIRTIO_QUEUE,
             (uintptr_t)q.descriptors / PAGE_SIZE);
    }
}

static void poke_config(uint64_t x)
{
    unsigned victim = x % VICTIMS;
    uint32_t devfn = (FIRST_VICTIM + victim) << 3;
    uint32_t offset = (x >> 8) % CONFIG_SIZE & ~3u;
    uint32_t value = x >> 32;

    if (x & 0x10000) {
        offset = x & 0x20000 ? PCI_COMMAND : PCI_BAR(0);
    }
    if (offset == PCI_COMMAND) {
        value = x & 0x1c0000 ? 7 : value & 0x507;
    } else if (offset == PCI_BAR(0)) {
        /* Never where another one's registers are taken for its own */
        value = x & 0xc00000 ? home(victim) : AWAY + HOME_STEP * victim;
    } else if (offset > PCI_BAR(0) && offset <= PCI_BAR(5)) {
        value = MEMORY_PLACE + value % MEMORY_BYTES;
    }
    config_read(devfn, offset);
    config_write(devfn, offset, value);
}

static void poke_register(uint64_t x)
{
    uint16_t base = home(x % VICTIMS);
    unsigned size = 1 << (x >> 8) % 3;
    unsigned offset = (x >> 16) % (HOME_SIZE - size + 1) & -size;
    uint32_t value = x >> 32;

    if (offset + size > VIRTIO_QUEUE && offset < VIRTIO_QUEUE + 4) {
        set_queues(x % VICTIMS);
    } else if (x & 0x1000) {
        inb(base + offset);
    } else if (size == 4) {
        outl(base + offset, value);
    } else if (size == 2) {
        outw(base + offset, value & (x & 0x2000 ? 0xffff : 7));
    } else {
        outb(base + offset, value);
    }
}

static uint64_t data_place(uint64_t x)
{
    return queue_place(0, 0) + ALL_QUEUES * QUEUE_BYTES + x % DATA_BYTES;
}

/* A chain as a disk expects it, or what no driver would do */
static void fill_queue(uint64_t x)
{
    volatile uint32_t *request = (uint32_t *)(data_place(x >> 24) & -8ull);
    Descriptor *d;
    unsigned first;
    Queue q;

    if (!find_queue(&q, x % VICTIMS, x >> 16) ||
        (!is_wild() && (uint16_t)(q.available[1] - q.used[1]) >=
                       MOST_WAITING)) {
        return;
    }
    d = q.descriptors;
    first = (x >> 16) % (q.size - 3);
    request[0] = x & 4 ? (x >> 3) % 2 : (x >> 3) % 16;
    request[1] = 0;
    request[2] = (x >> 40) % 2048;
    request[3] = x & 0xf0 ? 0 : x >> 32;
    d[first] = (Descriptor) { (uintptr_t)request, 16, 1, first + 1 };
    d[first + 1] = (Descriptor) {
        data_place(x >> 32) & -16ull, 512 * ((x >> 44) % 17),
        x & 8 ? 1 : 3, first + 2 };
    d[first + 2] = (Descriptor) { data_place(x >> 20), 1, 2, 0 };
    if (!(x & 0xf000000)) {
        uint64_t y = mix(x);

        d[first + y % 3] = (Descriptor) {
            data_place(y >> 32), (y >> 8) % MOST_BYTES, y >> 24 & 7, y >> 48 };
    }
    q.available[2 + q.available[1] % q.size] = first;
    __sync_synchronize();
    q.available[1] += is_wild() && !(x & 0xff00) ? x >> 48 : 1;
    if (is_wild() && !(x & 0xff0000)) {
        q.used[1] = x >> 32;
    }
    if (!(x & 0xf00000)) {
        q.available[0] = x >> 40 & 1;
    }
}

static void kick(uint64_t x)
{
    uint16_t base = home(x % VICTIMS);

    if (!(x & 0x700)) {
        set_queues(x % VICTIMS);
    }
    outb(base + VIRTIO_STATUS, VIRTIO_OK);
    fill_queue(x);
    outw(base + VIRTIO_NOTIFY, (x >> 16) % QUEUES);
}

static void eject(uint64_t x)
{
    uint32_t slot = 1u << (FIRST_VICTIM + x % VICTIMS);

    if (!(x & 0xf00)) {
        slot = x >> 32;
    }
    two.r->loads = ALL_SLOTS;
    outl(EJECT_BUS, 0);
    outl(EJECT_PORT, slot & two.eject & ~1u);
}

static void poke(uint64_t x)
{
    unsigned kind = x % 1024;

    x = mix(x);
    if (kind < 2) {
        eject(x);
    } else if (kind == 2 && !(x & 0xf)) {
        outb(RESET_PORT, RESET_ALL);
    } else if (kind < 64) {
        poke_config(x);
    } else if (kind < 400) {
        poke_register(x);
    } else if (kind < 700) {
        fill_queue(x);
    } else {
        kick(x);
    }
}

static void save_or_load(volatile Region *r, uint64_t x)
{
    unsigned slot = x & 1;
    bool load = x & 6 && (!(x & 0xf0) || !(r->loads & 1 << slot));

    if (!load) {
        __atomic_and_fetch(&r->loads, ~(1ull << slot), __ATOMIC_RELAXED);
    }
    snapctl_command(&two.s, r, slot, load ? SNAPCTL_COMMAND_LOAD
                                          : SNAPCTL_COMMAND_SAVE);
}

static uint64_t save_and_load(uint64_t unused, uint64_t unused2)
{
    volatile Region *r = two.r;

    for (;;) {
        uint64_t x = snapctl_draw(r);

        __atomic_add_fetch(&r->steps, 1, __ATOMIC_RELAXED);
        if (!snapctl_pair(r, two.addr, two.pages)) {
            return unused + unused2;
        }
        if (!(x & two.pace)) {
            save_or_load(r, mix(x));
        }
    }
}

static void start(const uint64_t *n)
{
    uint64_t bytes = ALL_QUEUES * QUEUE_BYTES + DATA_BYTES + MOST_BYTES;

    two.addr = n[0];
    two.pages = n[1];
    two.eject = n[2];
    two.pace = n[3];
    set(two.addr, two.pages * PAGE_SIZE + bytes, 0);
    for (unsigned i = 0; i < VICTIMS; i++) {
        config_write((FIRST_VICTIM + i) << 3, PCI_BAR(0), home(i));
        config_write((FIRST_VICTIM + i) << 3, PCI_COMMAND, 7);
    }
    call_begin(1, (Call) { .func = save_and_load });
    for (;;) {
        poke(snapctl_draw(two.r));
    }
}

bool serve_two(const char *line, const uint64_t *n)
{
    if (!take_word(&line, "two") || !snapctl_find(&two.s)) {
        return false;
    }
    two.r = snapctl_region(&two.s);
    if (two.r) {
        start(n);
    }
    return false;
}
