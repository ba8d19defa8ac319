/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The target that snapctl-harness runs in the tests; its input tells it:
 *
 *   exit N      ends with status N
 *   signal N    is killed by it
 *   flood N     writes N bytes
 *   fork        leaves a child behind that holds stdout open
 *   sleep       until it is killed
 *   panic       has the kernel crash
 *   freeze      stops all that the guest does
 *
 * Otherwise it writes "SUM LENGTH" of what it has read.  With an argument, a
 * file, it also says if that exists, and makes it: then "dirty" comes first,
 * in a guest that has not been taken back.
 */

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define FNV_BASIS   0x811c9dc5
#define FNV_PRIME   0x01000193

static void flood(long count)
{
    char block[4096];

    memset(block, 'x', sizeof(block));
    while (count > 0) {
        ssize_t n = write(STDOUT_FILENO, block, count < (long)sizeof(block)
                          ? (size_t)count : sizeof(block));

        if (n < 0) {
            exit(99);
        }
        count -= n;
    }
}

static void panic(void)
{
    int fd = open("/proc/sysrq-trigger", O_WRONLY);

    if (fd < 0 || write(fd, "c", 1) != 1) {
        exit(98);
    }
    pause();
}

/* There is one processor, and nobody comes before a realtime process */
static void freeze(void)
{
    struct sched_param param = { .sched_priority = 99 };
    int fd = open("/proc/sys/kernel/sched_rt_runtime_us", O_WRONLY);

    if (fd < 0 || write(fd, "-1", 2) != 2 ||
        sched_setscheduler(0, SCHED_FIFO, &param)) {
        exit(97);
    }
    for (;;) {
        sched_yield();
    }
}

static void act(const char *input)
{
    int number;

    if (sscanf(input, "exit %d", &number) == 1) {
        exit(number);
    } else if (sscanf(input, "signal %d", &number) == 1) {
        raise(number);
    } else if (sscanf(input, "flood %d", &number) == 1) {
        flood(number);
        exit(0);
    } else if (strncmp(input, "fork", 4) == 0) {
        if (fork() == 0) {
            pause();
        }
        exit(0);
    } else if (strncmp(input, "sleep", 5) == 0) {
        pause();
    } else if (strncmp(input, "panic", 5) == 0) {
        panic();
    } else if (strncmp(input, "freeze", 6) == 0) {
        freeze();
    }
}

int main(int argc, char **argv)
{
    static char input[65537];
    uint32_t sum = FNV_BASIS;
    size_t length = 0;
    ssize_t n;

    while ((n = read(STDIN_FILENO, input + length,
                     sizeof(input) - 1 - length)) > 0) {
        length += n;
    }
    act(input);
    for (size_t i = 0; i < length; i++) {
        sum = (sum ^ (unsigned char)input[i]) * FNV_PRIME;
    }
    if (argc > 1) {
        int fd = open(argv[1], O_WRONLY | O_CREAT | O_EXCL, 0600);

        if (fd < 0) {
            printf("dirty ");
        }
    }
    printf("%08x %zu\n", sum, length);
    return 0;
}
