/*
 * prim_overlay() when the kernel refuses any of its calls
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "faults.h"
#include "ram.h"

#define OLD 0xa5
#define NEW 0x5a

/* @ranges of @ram are mapped from @file */
typedef struct State {
    Ram *ram;
    int file;
    PrimRange ranges[3];
} State;

static void teardown(void *opaque)
{
    State *s = opaque;

    close(s->file);
    ram_free(s->ram);
    g_free(s);
}

static void *setup_overlay(const void *kind)
{
    State *s = g_new0(State, 1);
    size_t size;

    s->ram = ram_new(kind, "ram", MFD_CLOEXEC);
    size = s->ram->map.page_size;
    memset(s->ram->map.host, OLD, s->ram->map.len);
    s->file = memfd_create("template", MFD_CLOEXEC);
    g_assert_cmpint(ftruncate(s->file, s->ram->map.len), ==, 0);
    for (uint64_t i = 0; i < ram_pages(s->ram); i++) {
        g_autofree uint8_t *page = g_malloc(size);

        memset(page, NEW, size);
        g_assert_cmpint(pwrite(s->file, page, size, i * size), ==, size);
    }
    s->ranges[0] = (PrimRange) { 0, size };
    s->ranges[1] = (PrimRange) { 4 * size, 8 * size };
    s->ranges[2] = (PrimRange) { 40 * size, 2 * size };
    return s;
}

static bool run_overlay(void *opaque)
{
    State *s = opaque;

    return prim_overlay(&s->ram->map, s->file, 0, s->ranges, 3) == 0;
}

static bool run_overlay_zero(void *opaque)
{
    State *s = opaque;

    return prim_overlay(&s->ram->map, -1, 0, s->ranges, 3) == 0;
}

static void check_overlaid(State *s, bool ok, uint8_t value)
{
    size_t size = s->ram->map.page_size;

    for (uint64_t i = 0; i < ram_pages(s->ram); i++) {
        bool in = false;

        for (unsigned j = 0; j < 3; j++) {
            in = in || i * size - s->ranges[j].start < s->ranges[j].len;
        }
        if (!(in && ram_page_is(s->ram, i, value)) && !(ok && in) &&
            !ram_page_is(s->ram, i, OLD)) {
            faults_wrong("wrong byte in page %u", (unsigned)i);
        }
    }
}

static void check_overlay(void *opaque, bool ok)
{
    check_overlaid(opaque, ok, NEW);
}

static void check_overlay_zero(void *opaque, bool ok)
{
    check_overlaid(opaque, ok, 0);
}

static const FaultTest overlay = { setup_overlay, run_overlay, check_overlay,
                                   teardown };
static const FaultTest overlay_zero = { setup_overlay, run_overlay_zero,
                                        check_overlay_zero, teardown };

static void sweep_overlay(void)
{
    faults_sweep("overlay/anon", &overlay, &kinds[0]);
}

static void sweep_overlay_zero(void)
{
    faults_sweep("overlay-zero/anon", &overlay_zero, &kinds[0]);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/faults/overlay/anon", sweep_overlay);
    g_test_add_func("/faults/overlay-zero/anon", sweep_overlay_zero);
    return g_test_run();
}
