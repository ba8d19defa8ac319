/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Ring-3 test guest: code that is written while the guest runs.
 *
 *   code-put ADDR VALUE     "ok"; at ADDR, which may be anywhere in a page, is
 *                           a function that returns VALUE, 32 bits
 *   code-poke ADDR VALUE    "ok"; the function at ADDR returns VALUE now, by
 *                           writing to VALUE's bytes only
 *   code-count ADDR VALUE   "ok"; one that returns VALUE + 1 when it is called,
 *                           then VALUE + 2: it writes to itself
 *   code-run CPU ADDR       "ok VALUE": what CPU gets from the function at ADDR
 *   code-patched ADDR       no answer: by a write to port 0x7e, QEMU is asked to
 *                           overwrite the instruction that does it, at ADDR;
 *                           again and again, until there is input
 */

#include "ring3.h"

/* mov $0,%eax; ret */
static const uint8_t returns[] = { 0xb8, 0, 0, 0, 0, 0xc3 };
#define RETURNS_VALUE   1

/* incl 1(%rip), the value of what follows; mov $0,%eax; ret */
static const uint8_t counts[] = {
    0xff, 0x05, 1, 0, 0, 0, 0xb8, 0, 0, 0, 0, 0xc3
};
#define COUNTS_VALUE    7

/* out %al,$0x7e; ret */
static const uint8_t patched[] = { 0xe6, 0x7e, 0xc3 };

static void put(uint64_t addr, const uint8_t *code, size_t len)
{
    while (len--) {
        *(volatile uint8_t *)addr++ = *code++;
    }
}

static void put_value(uint64_t addr, uint32_t value)
{
    put(addr, (const uint8_t *)&value, sizeof(value));
}

bool serve_code(const char *line, const uint64_t *n)
{
    if (take_word(&line, "code-put")) {
        put(n[0], returns, sizeof(returns));
        put_value(n[0] + RETURNS_VALUE, n[1]);
        answer_ok(NULL, 0);
    } else if (take_word(&line, "code-poke")) {
        put_value(n[0] + RETURNS_VALUE, n[1]);
        answer_ok(NULL, 0);
    } else if (take_word(&line, "code-count")) {
        put(n[0], counts, sizeof(counts));
        put_value(n[0] + COUNTS_VALUE, n[1]);
        answer_ok(NULL, 0);
    } else if (take_word(&line, "code-run")) {
        Call call = call_on(n[0], (Call) { .func = (Function *)n[1] });

        answer_ok(&call.value, 1);
    } else if (take_word(&line, "code-patched")) {
        while (!input_waiting()) {
            put(n[0], patched, sizeof(patched));
            ((Function *)n[0])(0, 0);
        }
    } else {
        return false;
    }
    return true;
}
