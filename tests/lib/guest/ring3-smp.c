/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Ring-3 test guest: several CPUs.  Numbers are hexadecimal; a CPU's number is
 * that of its APIC.
 *
 *   start-cpu CPU                  "ok"; it waits for work from then on
 *   all-loop ADDR PAGES REPORT     what "loop" does, by all CPUs at the same
 *                                  time, each with PAGES of its own.  "pass N"
 *                                  when all have done REPORT passes more.  Says
 *                                  '!' if the clock goes backwards, too, from
 *                                  any CPU to any other
 *   all-check ADDR PAGES           "ok" if each CPU's pages have what its loop
 *                                  has left, whoever stopped it
 *   skew CPU                       "ok LOW HIGH": by how much CPU's clock is
 *                                  ahead of this one's, two's complement
 */

#include "ring3.h"
#include "ring3-cpus.h"

#define APIC            0xfee00000
#define APIC_ICR_LOW    (APIC + 0x300)
#define APIC_ICR_HIGH   (APIC + 0x310)
#define ICR_INIT        0x4500
#define ICR_STARTUP     0x4600

#define SKEW_ROUNDS     200

typedef enum Job { NONE, LOOP, SKEW, CALL } Job;

typedef struct Cpu {
    volatile bool running;
    volatile Job job;           /* NONE once it is done */
    volatile uint64_t pass;     /* done in full */
    volatile uint64_t bad;      /* address of what it has not left there */
    volatile uint64_t late;     /* by how much the clock went backwards */
} Cpu;

static Cpu cpus[MAX_CPUS];
volatile uint32_t starting;     /* read by the trampoline */
static volatile bool stopping;
static volatile uint64_t work_addr, work_pages;
/* The latest that any CPU has seen */
static volatile uint64_t latest;
static volatile uint64_t ping, pong, pong_ticks;
static Call call;

extern char trampoline[], trampoline_end[];

void other_cpu(unsigned number);

static inline void relax(void)
{
    asm volatile("pause" : : : "memory");
}

static void write_apic(uint64_t reg, uint32_t value)
{
    *(volatile uint32_t *)reg = value;
}

static void interrupt_cpu(unsigned number, uint32_t what)
{
    write_apic(APIC_ICR_HIGH, number << 24);
    write_apic(APIC_ICR_LOW, what);
}

static void start_cpu(unsigned number)
{
    volatile char *place = (volatile char *)START_PLACE;

    for (char *p = trampoline; p < trampoline_end; p++) {
        *place++ = *p;
    }
    cpus[number] = (Cpu) { 0 };
    starting = number;
    interrupt_cpu(number, ICR_INIT);
    while (!cpus[number].running) {
        interrupt_cpu(number, ICR_STARTUP | START_PLACE / PAGE_SIZE);
        for (unsigned i = 0; i < 100000 && !cpus[number].running; i++) {
            relax();
        }
    }
}

/* No time that any CPU has seen before is later */
static void look_at_clock(Cpu *cpu)
{
    uint64_t before = latest, now = ticks();

    if (now < before && !cpu->late) {
        cpu->late = before - now;
    }
    while (now > before &&
           !__atomic_compare_exchange_n(&latest, &before, now, false,
                                        __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    }
}

static uint64_t first_page(unsigned number)
{
    return work_addr + number * work_pages * PAGE_SIZE;
}

/* One pass; its number is also in the caller's registers */
static bool write_and_check(unsigned number, uint64_t pass)
{
    uint64_t page = first_page(number);

    for (uint64_t i = 0; i < work_pages; i++, page += PAGE_SIZE) {
        if (pass > 1 && *at(page) != loop_tag(page, pass - 1)) {
            cpus[number].bad = page;
            return false;
        }
        *at(page) = loop_tag(page, pass);
        look_at_clock(&cpus[number]);
    }
    cpus[number].pass = pass;
    return !cpus[number].late;
}

static void loop(unsigned number)
{
    for (uint64_t pass = 1; !stopping; pass++) {
        if (!write_and_check(number, pass)) {
            return;
        }
    }
}

static bool all_well(void)
{
    for (unsigned i = 0; i < MAX_CPUS; i++) {
        if (cpus[i].bad || cpus[i].late) {
            put_char('!');
            answer(cpus[i].bad ? "corrupt" : "backwards",
                   cpus[i].bad ?: cpus[i].late);
            return false;
        }
    }
    return true;
}

static uint64_t least_pass(void)
{
    uint64_t least = cpus[0].pass;

    for (unsigned i = 1; i < MAX_CPUS; i++) {
        if (cpus[i].running && cpus[i].pass < least) {
            least = cpus[i].pass;
        }
    }
    return least;
}

static void all_loop(uint64_t addr, uint64_t pages, uint64_t report)
{
    uint64_t next = report;

    work_addr = addr;
    work_pages = pages;
    stopping = false;
    for (unsigned i = 0; i < MAX_CPUS; i++) {
        cpus[i].pass = cpus[i].bad = cpus[i].late = 0;
        cpus[i].job = cpus[i].running ? LOOP : NONE;
    }
    for (uint64_t pass = 1; ; pass++) {
        uint64_t least;

        write_and_check(0, pass);
        if (!all_well()) {
            break;
        }
        least = least_pass();
        if (least >= next) {
            answer("pass", least);
            next = least + report;
        }
        if (input_waiting()) {
            get_char();
            answer("ok", least);
            break;
        }
    }
    stopping = true;
    for (unsigned i = 1; i < MAX_CPUS; i++) {
        while (cpus[i].job) {
            relax();
        }
    }
}

static Result all_check(void)
{
    Result r = { 0, 0 };

    for (unsigned i = 0; i < MAX_CPUS; i++) {
        uint64_t page = first_page(i);

        for (uint64_t j = 0; cpus[i].pass && j < work_pages; j++) {
            note(&r, page, loop_tag(page, cpus[i].pass));
            page += PAGE_SIZE;
        }
    }
    return r;
}

static void answer_pings(void)
{
    for (uint64_t n = 1; n <= SKEW_ROUNDS; n++) {
        while (ping != n) {
            relax();
        }
        pong_ticks = ticks();
        pong = n;
    }
}

static void skew(Cpu *cpu)
{
    int64_t low = INT64_MIN, high = INT64_MAX;

    ping = pong = 0;
    cpu->job = SKEW;
    for (uint64_t n = 1; n <= SKEW_ROUNDS; n++) {
        uint64_t before = ticks(), after;

        ping = n;
        while (pong != n) {
            relax();
        }
        after = ticks();
        if ((int64_t)(pong_ticks - before) < high) {
            high = pong_ticks - before;
        }
        if ((int64_t)(pong_ticks - after) > low) {
            low = pong_ticks - after;
        }
    }
    answer_ok((uint64_t[]) { low, high }, 2);
}

void call_begin(unsigned number, Call what)
{
    call = what;
    cpus[number].job = CALL;
}

Call call_on(unsigned number, Call what)
{
    call = what;
    if (!number) {
        do_call(&call);
    } else {
        cpus[number].job = CALL;
        while (cpus[number].job) {
            relax();
        }
    }
    return call;
}

void other_cpu(unsigned number)
{
    Cpu *cpu = &cpus[number];

    cpu->running = true;
    for (;;) {
        switch (cpu->job) {
        case NONE:
            relax();
            continue;
        case LOOP:
            loop(number);
            break;
        case SKEW:
            answer_pings();
            break;
        case CALL:
            do_call(&call);
            break;
        }
        cpu->job = NONE;
    }
}

bool serve_smp(const char *line, const uint64_t *n)
{
    unsigned number = n[0] % MAX_CPUS;

    if (take_word(&line, "start-cpu")) {
        start_cpu(number);
        answer_ok(NULL, 0);
    } else if (take_word(&line, "all-loop")) {
        all_loop(n[0], n[1], n[2]);
    } else if (take_word(&line, "all-check")) {
        answer_result(all_check());
    } else if (take_word(&line, "skew")) {
        skew(&cpus[number]);
    } else {
        return false;
    }
    return true;
}
