/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Ring-3 test guest: serves one-line commands on the first serial port.
 *
 * Numbers are hexadecimal.  A command answers with one line that begins with
 * "ok", "bad COUNT FIRST-ADDRESS" or "error".  A '!' is sent only when a loop
 * finds memory that it did not write: one character, so that a load can not cut
 * the report in two.  The snapctl device's commands are in ring3-snapctl.c,
 * ivshmem's in ring3-shmem.c, those of several CPUs in ring3-smp.c, those of
 * registers in ring3-regs.c, of code in ring3-code.c, the work for lib/inflight
 * in ring3-flight.c.
 */

#include "ring3.h"

extern char bss_end[];

void guest_main(void);
void guest_trap(uint64_t vector, uint64_t error, uint64_t rip, uint64_t cr2);

void answer(const char *word, uint64_t value)
{
    put_string(word);
    put_char(' ');
    put_hex(value);
    put_char('\n');
}

void answer_ok(const uint64_t *values, size_t count)
{
    put_string("ok");
    while (count--) {
        put_char(' ');
        put_hex(*values++);
    }
    put_char('\n');
}

void answer_result(Result r)
{
    if (r.bad) {
        put_string("bad ");
        put_hex(r.bad);
        put_char(' ');
        put_hex(r.first);
        put_char('\n');
    } else {
        put_string("ok\n");
    }
}

void guest_trap(uint64_t vector, uint64_t error, uint64_t rip, uint64_t cr2)
{
    answer("trap", vector);
    answer("error", error);
    answer("rip", rip);
    answer("cr2", cr2);
}

/* splitmix64's last step: every bit of @x reaches every bit of the result */
uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9;
    x ^= x >> 27;
    x *= 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

static uint64_t tag(uint64_t addr, uint64_t seed)
{
    return mix(addr ^ (seed * 0x9e3779b97f4a7c15)) | 1;
}

/*
 * In every pass another half of the pages holds zeroes, so a snapshot of the
 * loop has zero pages that are dirty by the time of the load and stored pages
 * that are zero by then.
 */
uint64_t loop_tag(uint64_t addr, uint64_t pass)
{
    uint64_t t = mix(addr ^ (pass * 0x9e3779b97f4a7c15));

    return t & 1 ? t : 0;
}

void note(Result *r, uint64_t addr, uint64_t expected)
{
    if (*at(addr) != expected) {
        if (!r->bad++) {
            r->first = addr;
        }
    }
}

static uint64_t next(uint64_t x)
{
    return x * 6364136223846793005 + 1442695040888963407;
}

void fill(uint64_t addr, uint64_t len, uint64_t seed)
{
    uint64_t x = 0;

    for (uint64_t end = addr + len; addr < end; addr += 8) {
        x = addr % PAGE_SIZE && x ? next(x) : tag(addr, seed);
        *at(addr) = x;
    }
}

Result check_fill(uint64_t addr, uint64_t len, uint64_t seed)
{
    Result r = { 0, 0 };
    uint64_t x = 0;

    for (uint64_t end = addr + len; addr < end; addr += 8) {
        x = addr % PAGE_SIZE && x ? next(x) : tag(addr, seed);
        note(&r, addr, x);
    }
    return r;
}

void set(uint64_t addr, uint64_t len, uint64_t value)
{
    for (uint64_t end = addr + len; addr < end; addr += 8) {
        *at(addr) = value;
    }
}

Result check_set(uint64_t addr, uint64_t len, uint64_t value)
{
    Result r = { 0, 0 };

    for (uint64_t end = addr + len; addr < end; addr += 8) {
        note(&r, addr, value);
    }
    return r;
}

static void write_tags(uint64_t addr, uint64_t count, uint64_t stride,
                       uint64_t seed)
{
    for (; count--; addr += stride) {
        *at(addr) = tag(addr, seed);
    }
}

static Result check_tags(uint64_t addr, uint64_t count, uint64_t stride,
                         uint64_t seed)
{
    Result r = { 0, 0 };

    for (; count--; addr += stride) {
        note(&r, addr, tag(addr, seed));
    }
    return r;
}

static uint64_t checksum(uint64_t addr, uint64_t len)
{
    uint64_t sum = len;

    for (uint64_t end = addr + len; addr < end; addr += 8) {
        sum = (sum << 7 | sum >> 57) * 0x9e3779b97f4a7c15 ^ *at(addr);
    }
    return sum;
}

uint64_t ticks(void)
{
    uint32_t low, high;

    /* what was written before must have got its memory by now */
    asm volatile("mfence; lfence; rdtsc" : "=a"(low), "=d"(high) : : "memory");
    return (uint64_t)high << 32 | low;
}

/* @count pages out of @pages, @step apart modulo @pages */
static uint64_t next_page(uint64_t page, uint64_t pages, uint64_t step)
{
    page += step;
    return page < pages ? page : page - pages;
}

/* Ticks for writing one word in each */
static uint64_t touch(uint64_t addr, uint64_t pages, uint64_t count,
                      uint64_t step)
{
    uint64_t begin = ticks();

    for (uint64_t page = 0; count--; page = next_page(page, pages, step)) {
        *at(addr + page * PAGE_SIZE) = page | 1;
    }
    return ticks() - begin;
}

static Result check_untouched(uint64_t addr, uint64_t pages, uint64_t count,
                              uint64_t step)
{
    Result r = { 0, 0 };

    for (uint64_t page = 0; count--; page = next_page(page, pages, step)) {
        for (uint64_t i = 0; i < PAGE_SIZE; i += 8) {
            note(&r, addr + page * PAGE_SIZE + i, 0);
        }
    }
    return r;
}

/*
 * Each pass reads what the pass before it has left, then writes its own.  The
 * pass number lives in this stack frame, hence in the snapshot as well.
 */
static void endless_loop(uint64_t addr, uint64_t count, uint64_t stride,
                         uint64_t report)
{
    for (uint64_t i = 0; i < count; i++) {
        *at(addr + i * stride) = loop_tag(addr + i * stride, 0);
    }
    for (uint64_t pass = 1; ; pass++) {
        for (uint64_t i = 0; i < count; i++) {
            uint64_t page = addr + i * stride;

            if (*at(page) != loop_tag(page, pass - 1)) {
                put_char('!');
                answer("corrupt", page);
                return;
            }
            *at(page) = loop_tag(page, pass);
        }
        if (pass % report == 0) {
            answer("pass", pass);
        }
        if (input_waiting()) {
            get_char();
            answer("ok", pass);
            return;
        }
    }
}

bool take_word(const char **line, const char *word)
{
    const char *p = *line;

    while (*word) {
        if (*p++ != *word++) {
            return false;
        }
    }
    if (*p && *p != ' ') {
        return false;
    }
    *line = p;
    return true;
}

static uint64_t take_number(const char **line)
{
    const char *p = *line;
    uint64_t value = 0;

    while (*p == ' ') {
        p++;
    }
    for (; *p && *p != ' '; p++) {
        value = value << 4 | (*p <= '9' ? *p - '0' : *p - 'a' + 10);
    }
    *line = p;
    return value;
}

static void serve(const char *line)
{
    uint64_t n[4] = { 0 };
    const char *args = line;

    while (*args && *args != ' ') {
        args++;
    }
    for (int i = 0; i < 4; i++) {
        n[i] = take_number(&args);
    }

    if (take_word(&line, "ping")) {
        answer("pong", n[0]);
    } else if (take_word(&line, "fill")) {
        fill(n[0], n[1], n[2]);
        put_string("ok\n");
    } else if (take_word(&line, "check-fill")) {
        answer_result(check_fill(n[0], n[1], n[2]));
    } else if (take_word(&line, "set")) {
        set(n[0], n[1], n[2]);
        put_string("ok\n");
    } else if (take_word(&line, "check-set")) {
        answer_result(check_set(n[0], n[1], n[2]));
    } else if (take_word(&line, "tag")) {
        write_tags(n[0], n[1], n[2], n[3]);
        put_string("ok\n");
    } else if (take_word(&line, "check-tag")) {
        answer_result(check_tags(n[0], n[1], n[2], n[3]));
    } else if (take_word(&line, "sum")) {
        answer("ok", checksum(n[0], n[1]));
    } else if (take_word(&line, "ticks")) {
        answer("ok", ticks());
    } else if (take_word(&line, "touch")) {
        answer("ok", touch(n[0], n[1], n[2], n[3]));
    } else if (take_word(&line, "untouched")) {
        answer_result(check_untouched(n[0], n[1], n[2], n[3]));
    } else if (take_word(&line, "loop")) {
        endless_loop(n[0], n[1], n[2], n[3]);
    } else if (take_word(&line, "flight")) {
        flight(n[0]);
    } else if (*line && !serve_snapctl(line, n) && !serve_shmem(line, n) &&
               !serve_smp(line, n) && !serve_regs(line, n) &&
               !serve_code(line, n) && !serve_two(line, n)) {
        put_string("error\n");
    }
}

void guest_main(void)
{
    static char line[128];
    uint16_t cs;

    outb(COM1_IER, 0);
    outb(COM1_LCR, 3);
    outb(COM1_FCR, 7);

    asm("mov %%cs, %0" : "=r"(cs));
    put_string("ready ");
    put_hex(cs & 3);
    answer("", (uintptr_t)bss_end);

    for (;;) {
        size_t len = 0;
        char c;

        while ((c = get_char()) != '\n') {
            if (len < sizeof(line) - 1) {
                line[len++] = c;
            }
        }
        line[len] = '\0';
        serve(line);
    }
}
