/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Functions that the parts of the ring-3 test guest share; see ring3.c. */

#ifndef RING3_H
#define RING3_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ring3-cpus.h"
#include "serial.h"

#define PAGE_SIZE       4096

typedef struct Result {
    uint64_t bad;
    uint64_t first;
} Result;

/* A CPU runs this in ring 0, in which a fault ends it, or in ring 3 */
typedef uint64_t Function(uint64_t a, uint64_t b);

typedef struct Call {
    Function *func;
    bool ring0;
    uint64_t a, b;
    uint64_t value;
    bool fault;
} Call;

static inline void outl(uint16_t port, uint32_t value)
{
    asm volatile("outl %0, %1" : : "a"(value), "Nd"(port));
}

static inline uint32_t inl(uint16_t port)
{
    uint32_t value;

    asm volatile("inl %1, %0" : "=a"(value) : "Nd"(port));
    return value;
}

static inline volatile uint64_t *at(uint64_t addr)
{
    return (volatile uint64_t *)addr;
}

void answer(const char *word, uint64_t value);
/* "ok" and @count numbers */
void answer_ok(const uint64_t *values, size_t count);
void answer_result(Result r);

bool take_word(const char **line, const char *word);

uint64_t mix(uint64_t x);
/* The value of a word in a pass of a loop */
uint64_t loop_tag(uint64_t addr, uint64_t pass);
void note(Result *r, uint64_t addr, uint64_t expected);
void fill(uint64_t addr, uint64_t len, uint64_t seed);
void set(uint64_t addr, uint64_t len, uint64_t value);
Result check_fill(uint64_t addr, uint64_t len, uint64_t seed);
Result check_set(uint64_t addr, uint64_t len, uint64_t value);
uint64_t ticks(void);

/* @pages pages from @addr on; the guest says '!' if they are not whole */
void write_snapshot(uint64_t addr, uint64_t pages);
bool snapshot_is_whole(uint64_t addr, uint64_t pages);
/* In each @round others */
void make_dirty(uint64_t addr, uint64_t pages, uint64_t round);

/* Works with RAM and disk for ever; the World is at @addr */
void flight(uint64_t addr);

/* By this CPU, or by @number; one at a time */
void do_call(Call *call);
Call call_on(unsigned number, Call call);
/* By another CPU, which is not waited for */
void call_begin(unsigned number, Call call);

/* Whether @line was a command of that file; @n its numbers */
bool serve_snapctl(const char *line, const uint64_t *n);
bool serve_shmem(const char *line, const uint64_t *n);
bool serve_smp(const char *line, const uint64_t *n);
bool serve_regs(const char *line, const uint64_t *n);
bool serve_code(const char *line, const uint64_t *n);
bool serve_two(const char *line, const uint64_t *n);

#endif
