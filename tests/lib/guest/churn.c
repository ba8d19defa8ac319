/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Keeps a disk busy, and knows what has to be on it.
 *
 *   churn DEVICE DEPTH FILE [stamped]
 *
 * has DEPTH requests in flight, past the page cache, without end: most write a
 * block, and some read one and compare.  Each write is of numbers by which no
 * two runs after one snapshot are alike, for they are of RDRAND; so a write
 * that another run has left behind is found.  FILE has the number of requests,
 * of times that the whole disk was compared, which SIGUSR1 asks for, and what
 * was found in the end.
 *
 * A disk that is "stamped" has in each block the number of the block plus one,
 * and gets nothing else: so it need not go back with the guest.  Half of the
 * requests then read, to anywhere in much memory that nobody else writes to.
 */

#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rdrand.h"

#define BLOCK       16384
#define SECTOR      512
#define MAX_DEPTH   64
#define MAX_BLOCKS  1024
#define ARENA       1024        /* blocks of memory to read to */
#define REPORT      32          /* requests between two lines in FILE */

struct stamp {
    uint64_t number;
    uint64_t block;
    uint64_t sector;
};

struct request {
    struct iocb iocb;
    uint64_t block;
    uint64_t number;            /* what is written, or is expected */
    bool writes;
    unsigned char *data, *own;
};

static struct request requests[MAX_DEPTH];
static uint64_t numbers[MAX_BLOCKS];        /* what each block has */
static bool busy[MAX_BLOCKS];
static uint64_t blocks, done, compared, state;
static int fd, report_fd;
static bool stamped;
static unsigned char *arena;
static volatile sig_atomic_t wanted;

static void on_signal(__attribute__((unused)) int sig)
{
    wanted++;
}

static void report(const char *result)
{
    char line[200];
    int len = snprintf(line, sizeof(line), "%12llu %6llu %-120s\n",
                       (unsigned long long)done, (unsigned long long)compared,
                       result);

    if (pwrite(report_fd, line, len, 0) != len) {
        _exit(3);
    }
}

static void found(const char *what, uint64_t block, uint64_t sector,
                  uint64_t is, uint64_t expected)
{
    char line[120];

    snprintf(line, sizeof(line), "bad %s block %llu sector %llu %llx not %llx",
             what, (unsigned long long)block, (unsigned long long)sector,
             (unsigned long long)is, (unsigned long long)expected);
    report(line);
    exit(1);
}

/* which block is next need not differ between runs */
static uint64_t next_random(void)
{
    if (stamped) {
        return fresh_number();
    }
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (state * 0x2545f4914f6cdd1d) >> 33;
}

static void fill(struct request *r)
{
    memset(r->data, 0, BLOCK);
    for (uint64_t i = 0; i < BLOCK / SECTOR; i++) {
        struct stamp *stamp = (struct stamp *)(r->data + i * SECTOR);

        *stamp = (struct stamp){ r->number, r->block, i };
    }
}

/* A place that no other request has */
static unsigned char *find_place(void)
{
    for (;;) {
        unsigned char *place = arena + fresh_number() % ARENA * BLOCK;
        bool taken = false;

        for (unsigned i = 0; i < MAX_DEPTH; i++) {
            taken |= requests[i].data == place;
        }
        if (!taken) {
            return place;
        }
    }
}

static void compare(struct request *r)
{
    for (uint64_t i = 0; i < BLOCK / SECTOR; i++) {
        struct stamp *stamp = (struct stamp *)(r->data + i * SECTOR);

        if (stamp->number != r->number) {
            found("content", r->block, i, stamp->number, r->number);
        }
        if (r->number && (stamp->block != r->block || stamp->sector != i)) {
            found("place", r->block, i, stamp->block, stamp->sector);
        }
    }
}

static void start(aio_context_t context, struct request *r, uint64_t block,
                  bool writes)
{
    struct iocb *iocb = &r->iocb;

    r->block = block;
    r->writes = writes;
    r->number = writes && !stamped ? fresh_number() : numbers[block];
    busy[block] = true;
    r->data = stamped && !writes ? find_place() : r->own;
    if (writes) {
        fill(r);
    }
    *iocb = (struct iocb){
        .aio_data = (uintptr_t)r,
        .aio_lio_opcode = writes ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD,
        .aio_fildes = fd,
        .aio_buf = (uintptr_t)r->data,
        .aio_nbytes = BLOCK,
        .aio_offset = block * BLOCK,
    };
    if (syscall(SYS_io_submit, context, 1, &iocb) != 1) {
        found("submission", block, 0, errno, 0);
    }
}

static void end(struct request *r, int64_t result)
{
    if (result != BLOCK) {
        found(r->writes ? "write" : "read", r->block, 0, result, BLOCK);
    }
    if (r->writes) {
        numbers[r->block] = r->number;
    } else {
        compare(r);
    }
    busy[r->block] = false;
    if (++done % REPORT == 0) {
        report("");
    }
}

static void wait_for_one(aio_context_t context, struct request **idle,
                         unsigned *n_idle)
{
    struct io_event events[MAX_DEPTH];
    long n = syscall(SYS_io_getevents, context, 1, MAX_DEPTH, events, NULL);

    for (long i = 0; i < n; i++) {
        struct request *r = (struct request *)(uintptr_t)events[i].data;

        end(r, events[i].res);
        idle[(*n_idle)++] = r;
    }
}

static void churn(aio_context_t context, unsigned depth)
{
    struct request *idle[MAX_DEPTH];
    unsigned n_idle = 0;
    uint64_t next = 0;
    bool all = false;           /* blocks are compared, one after another */

    for (unsigned i = 0; i < depth; i++) {
        idle[n_idle++] = &requests[i];
    }
    for (;;) {
        if (all && next == blocks && n_idle == depth) {
            all = false;
            compared++;
            report("");
        }
        if (wanted && !all) {
            wanted = 0;
            all = true;
            next = 0;
        }
        while (n_idle && !(all && next == blocks)) {
            uint64_t block = all ? next : next_random() % blocks;

            if (busy[block]) {
                break;
            }
            start(context, idle[--n_idle], block,
                  !all && next_random() % 4 >= (stamped ? 2 : 1));
            next += all;
        }
        wait_for_one(context, idle, &n_idle);
    }
}

int main(int argc, char **argv)
{
    aio_context_t context = 0;
    unsigned depth;
    uint64_t size;

    if (argc != 4 && argc != 5) {
        return 2;
    }
    stamped = argc == 5;
    depth = atoi(argv[2]);
    fd = open(argv[1], O_RDWR | O_DIRECT);
    report_fd = open(argv[3], O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || report_fd < 0 || depth < 1 || depth > MAX_DEPTH ||
        ioctl(fd, BLKGETSIZE64, &size) < 0 ||
        syscall(SYS_io_setup, depth, &context) < 0) {
        perror(argv[1]);
        return 2;
    }
    blocks = size / BLOCK < MAX_BLOCKS ? size / BLOCK : MAX_BLOCKS;
    for (uint64_t i = 0; stamped && i < blocks; i++) {
        numbers[i] = i + 1;
    }
    state = fresh_number();
    for (unsigned i = 0; i < depth; i++) {
        requests[i].own = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    if (stamped) {
        arena = mmap(NULL, ARENA * BLOCK, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(arena, 1, ARENA * BLOCK);
    }
    signal(SIGUSR1, on_signal);
    report("");
    churn(context, depth);
}
