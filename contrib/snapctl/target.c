/* SPDX-License-Identifier: GPL-2.0-or-later */

#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ring.h"
#include "target.h"

static struct {
    int input;                  /* a file, so that TARGET can seek in it */
    int output[2];
    sigset_t mask;              /* as it was at the start, for TARGET */
} made;

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static struct timespec timespec_of(uint64_t ns)
{
    return (struct timespec) {
        .tv_sec = ns / 1000000000,
        .tv_nsec = ns % 1000000000,
    };
}

static void on_sigchld(int number)
{
    (void)number;       /* its only purpose is to interrupt ppoll() */
}

const char *target_prepare(void)
{
    struct sigaction action = { .sa_handler = on_sigchld };
    sigset_t child;

    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigemptyset(&action.sa_mask);
    if (sigprocmask(SIG_BLOCK, &child, &made.mask) ||
        sigaction(SIGCHLD, &action, NULL)) {
        return "SIGCHLD cannot be handled";
    }
    made.input = memfd_create("input", MFD_CLOEXEC);
    if (made.input < 0) {
        return "there is no file for inputs";
    }
    if (pipe2(made.output, O_CLOEXEC | O_NONBLOCK)) {
        return "there is no pipe for outputs";
    }
    /* TARGET's end of the pipe blocks, as programs expect */
    if (fcntl(made.output[1], F_SETFL, 0)) {
        return "the pipe for outputs cannot be set up";
    }
    return NULL;
}

/* 0 or an errno */
static int give_input(const uint8_t *data, size_t len)
{
    while (len) {
        ssize_t n = write(made.input, data, len);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return errno;
        }
        data += n;
        len -= n;
    }
    return lseek(made.input, 0, SEEK_SET) < 0 ? errno : 0;
}

/*
 * 0 or an errno; children that TARGET leaves behind can be killed with its
 * group
 */
static int target_start(char **argv, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t defaults;
    int error;

    sigemptyset(&defaults);
    sigaddset(&defaults, SIGCHLD);
    error = posix_spawn_file_actions_init(&actions);
    if (error) {
        return error;
    }
    error = posix_spawnattr_init(&attr);
    if (error) {
        goto out;
    }
    error = posix_spawn_file_actions_adddup2(&actions, made.input, 0);
    error = error ?: posix_spawn_file_actions_adddup2(&actions,
                                                      made.output[1], 1);
    error = error ?: posix_spawn_file_actions_adddup2(&actions,
                                                      made.output[1], 2);
    error = error ?: posix_spawnattr_setpgroup(&attr, 0);
    error = error ?: posix_spawnattr_setsigmask(&attr, &made.mask);
    error = error ?: posix_spawnattr_setsigdefault(&attr, &defaults);
    error = error ?: posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP |
                                              POSIX_SPAWN_SETSIGMASK |
                                              POSIX_SPAWN_SETSIGDEF);
    error = error ?: posix_spawnp(pid, argv[0], &actions, &attr, argv,
                                  environ);
    posix_spawnattr_destroy(&attr);
out:
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

/* Read all available output; false at the end of the file */
static bool target_drain(struct result *result, uint8_t *output, uint32_t size)
{
    uint8_t buffer[4096];

    for (;;) {
        uint32_t room = size - result->output_len;
        ssize_t n = read(made.output[0], buffer, sizeof(buffer));

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return n < 0 && errno == EAGAIN;
        }
        result->output_total += n;
        if (room > (size_t)n) {
            room = n;
        }
        memcpy(output + result->output_len, buffer, room);
        result->output_len += room;
    }
}

static void target_follow(pid_t pid, uint64_t begin, uint64_t timeout_ns,
                          struct result *result, uint8_t *output, uint32_t size)
{
    struct pollfd poll = { .fd = made.output[0], .events = POLLIN };
    sigset_t mask = made.mask;
    bool open = true;
    int status;

    sigdelset(&mask, SIGCHLD);
    for (;;) {
        uint64_t passed = now_ns() - begin;
        struct timespec left;
        pid_t ended = waitpid(pid, &status, WNOHANG);

        if (ended == 0 && timeout_ns && passed >= timeout_ns) {
            kill(-pid, SIGKILL);
            do {
                ended = waitpid(pid, &status, 0);
            } while (ended < 0 && errno == EINTR);
            result->kind = RING_RESULT_TIMEOUT;
        }
        if (ended) {
            break;
        }
        left = timespec_of(timeout_ns - passed);
        ppoll(&poll, open, timeout_ns ? &left : NULL, &mask);
        open = open && target_drain(result, output, size);
    }
    result->run_ns = now_ns() - begin;
    if (open) {
        target_drain(result, output, size);
    }
    if (result->kind == RING_RESULT_TIMEOUT) {
        return;
    }
    result->kind = WIFSIGNALED(status) ? RING_RESULT_SIGNAL
                                       : RING_RESULT_EXITED;
    result->code = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

void target_run(char **argv, uint64_t timeout_ns, const uint8_t *input,
                uint32_t len, uint8_t *output, uint32_t size,
                struct result *result)
{
    uint64_t begin = now_ns();
    pid_t pid;
    int error;

    memset(result, 0, sizeof(*result));
    error = give_input(input, len);
    error = error ?: target_start(argv, &pid);
    if (error) {
        result->kind = RING_RESULT_ERROR;
        result->code = error;
        return;
    }
    /* this allows the end of the file once TARGET's last child has ended */
    close(made.output[1]);
    target_follow(pid, begin, timeout_ns, result, output, size);
}
