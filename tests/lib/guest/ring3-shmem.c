/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Ring-3 test guest: runs "programs" that the host hands over in ivshmem-plain's
 * memory, one after each load, as a fuzzer's executor does.
 *
 *   shm-serve ADDR PAGES    "ok", then nothing.  Saved then, it runs the program
 *                           that Shmem.input has after a load: finds the pages
 *                           as they were saved, writes to them, and says so in
 *                           Shmem.output.  It does no more until the next load
 *   map-bar ID BAR          "ok"; a PCI device's memory is at REGION_PLACE from
 *                           then on
 *   vga-poke OFFSET VALUE   "ok"; a byte of the VGA's memory is VALUE, by way of
 *                           0xa0000, one plane of four
 */

#include "ring3-pci.h"

#define IVSHMEM_ID      0x11101af4
#define REGS_BAR        0
#define MEMORY_BAR      2

#define VGA_SEQUENCER   0x3c4
#define VGA_PLANE_MASK  2
#define VGA_MEMORY_MODE 4
#define VGA_CHAIN_4     0x08
#define VGA_WINDOW      0xa0000

/* At the beginning of the memory; the host knows it as well */
typedef struct Shmem {
    uint64_t input;
    uint64_t output;    /* the input that was last done */
    uint64_t corrupt;   /* how often pages were not as they were saved */
} Shmem;

static volatile Shmem *find(void)
{
    for (uint32_t devfn = 0; devfn < 256; devfn += 8) {
        if (config_read(devfn, PCI_ID) == IVSHMEM_ID) {
            config_write(devfn, PCI_COMMAND, 0);
            config_write(devfn, PCI_BAR(REGS_BAR), REGS_PLACE);
            config_write(devfn, PCI_BAR(MEMORY_BAR), REGION_PLACE);
            config_write(devfn, PCI_BAR(MEMORY_BAR + 1), 0);
            config_write(devfn, PCI_COMMAND, MEMORY);
            return (volatile Shmem *)REGION_PLACE;
        }
    }
    return NULL;
}

static void map_bar(uint32_t id, unsigned bar)
{
    for (uint32_t devfn = 0; devfn < 256; devfn += 8) {
        if (config_read(devfn, PCI_ID) == id) {
            config_write(devfn, PCI_COMMAND, 0);
            config_write(devfn, PCI_BAR(bar), REGION_PLACE);
            config_write(devfn, PCI_BAR(bar + 1), 0);
            config_write(devfn, PCI_COMMAND, MEMORY);
        }
    }
}

static void vga_write(uint8_t index, uint8_t value)
{
    outb(VGA_SEQUENCER, index);
    outb(VGA_SEQUENCER + 1, value);
}

static void vga_poke(uint64_t offset, uint8_t value)
{
    vga_write(VGA_MEMORY_MODE, VGA_CHAIN_4);
    vga_write(VGA_PLANE_MASK, 1 << (offset & 3));
    *(volatile uint8_t *)(VGA_WINDOW + offset) = value;
}

static void serve(volatile Shmem *s, uint64_t addr, uint64_t pages)
{
    while (s->input == s->output) {
        asm volatile("pause");
    }
    if (!snapshot_is_whole(addr, pages)) {
        s->corrupt++;
    }
    make_dirty(addr, pages, s->input);
    s->output = s->input;
    for (;;) {
        asm volatile("pause");
    }
}

bool serve_shmem(const char *line, const uint64_t *n)
{
    volatile Shmem *s;

    if (take_word(&line, "map-bar")) {
        map_bar(n[0], n[1]);
        answer_ok(NULL, 0);
        return true;
    }
    if (take_word(&line, "vga-poke")) {
        vga_poke(n[0], n[1]);
        answer_ok(NULL, 0);
        return true;
    }
    if (!take_word(&line, "shm-serve")) {
        return false;
    }
    s = find();
    if (!s) {
        return false;
    }
    s->input = s->output;
    write_snapshot(n[0], n[1]);
    answer_ok(NULL, 0);
    serve(s, n[0], n[1]);
    return true;
}
