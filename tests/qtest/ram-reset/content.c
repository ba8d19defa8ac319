/*
 * RAM reset tests: writes of the guest, and the content of its RAM
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/cutils.h"
#include "qemu/units.h"
#include "framework.h"

#define PAGE (4 * KiB)

/* In pieces, since QEMU does not free its buffer for a large command */
void vm_fill(Vm *vm, uint64_t addr, uint64_t len, uint8_t byte)
{
    for (uint64_t end = addr + len; addr < end; addr += MiB) {
        qtest_memset(vm->qts, the_machine()->ram + addr, byte,
                     MIN(MiB, end - addr));
    }
}

void vm_random(Vm *vm, GRand *rand, uint64_t addr, uint64_t len)
{
    g_autofree uint32_t *buf = g_malloc(len);

    for (uint64_t i = 0; i < len / sizeof(*buf); i++) {
        buf[i] = g_rand_int(rand);
    }
    qtest_bufwrite(vm->qts, the_machine()->ram + addr, buf, len);
}

uint8_t vm_byte(Vm *vm, uint64_t addr)
{
    return qtest_readb(vm->qts, the_machine()->ram + addr);
}

uint8_t *vm_content(Vm *vm)
{
    uint8_t *content = g_malloc(vm->size);
    uint64_t done = 0;

    while (done < vm->size) {
        ssize_t n = pread(vm->mem, content + done, vm->size - done,
                          vm->hva + done);

        g_assert_cmpint(n, >, 0);
        done += n;
    }
    return content;
}

void vm_assert_content(Vm *vm, const uint8_t *expected)
{
    g_autofree uint8_t *content = vm_content(vm);
    uint64_t i = 0;

    if (!memcmp(content, expected, vm->size)) {
        return;
    }
    while (content[i] == expected[i]) {
        i++;
    }
    g_test_message("RAM at 0x%" PRIx64 " is %02x, should be %02x", i,
                   content[i], expected[i]);
    g_assert_not_reached();
}

uint64_t pages_with_data(const uint8_t *content, uint64_t size)
{
    uint64_t pages = 0;

    for (uint64_t i = 0; i < size; i += PAGE) {
        pages += !buffer_is_zero(content + i, PAGE);
    }
    return pages;
}

uint64_t pages_to_clear(const uint8_t *before, const uint8_t *after,
                        uint64_t size)
{
    uint64_t pages = 0;

    for (uint64_t i = 0; i < size; i += PAGE) {
        pages += !buffer_is_zero(before + i, PAGE) &&
                 buffer_is_zero(after + i, PAGE);
    }
    return pages;
}
