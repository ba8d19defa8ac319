/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * snapctl-harness: runs a program with one input after the other, each time in
 * a guest that has been taken back to how it was before.
 *
 * Inputs and results are in the ring of ring.h.  There is no loop: the guest is
 * saved, takes one input, runs TARGET, writes the result, and asks to be taken
 * back, which makes it go on behind the save.
 */

#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ring.h"
#include "snapctl.h"

#define TARGET_TIMEOUT_NS   (10 * 1000000000ULL)
#define COMMAND_TIMEOUT_MS  30000
/* An empty ring: first look often, then sleep longer and longer */
#define SPINS               2000
#define SHORTEST_NAP_NS     20000
#define LONGEST_NAP_NS      1000000

static struct {
    const char *device;
    uint32_t slot;
    bool no_save;
    bool no_load;
    uint64_t timeout_ns;        /* 0: none */
    char **target;
} options = {
    .timeout_ns = TARGET_TIMEOUT_NS,
};

/*
 * Made before the guest is saved.  As each life takes one input, they are new
 * for each.
 */
static struct {
    struct snapctl *device;
    void *region;
    size_t size;
    int input;                  /* a file: TARGET may seek in its stdin */
    int output[2];
    sigset_t mask;              /* as it was at the start, for TARGET */
} harness;

struct result {
    uint32_t kind;
    uint32_t code;
    uint32_t output_len;
    uint64_t output_total;
    uint64_t run_ns;
};

static void die(const char *format, ...) __attribute__((format(printf, 1, 2)))
    __attribute__((noreturn));
static void die(const char *format, ...)
{
    struct ring ring;
    va_list args;

    va_start(args, format);
    fputs("snapctl-harness: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    if (harness.region && ring_open(&ring, harness.region, harness.size)) {
        ring_set_state(&ring, RING_STATE_FAILED);
    }
    exit(1);
}

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

static void nap(uint64_t ns)
{
    struct timespec t = timespec_of(ns);

    nanosleep(&t, NULL);
}

/* TARGET */

static void on_sigchld(int number)
{
    (void)number;       /* it is there to interrupt ppoll() */
}

static void prepare(void)
{
    struct sigaction action = { .sa_handler = on_sigchld };
    sigset_t child;

    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigemptyset(&action.sa_mask);
    if (sigprocmask(SIG_BLOCK, &child, &harness.mask) ||
        sigaction(SIGCHLD, &action, NULL)) {
        die("SIGCHLD cannot be handled: %s", strerror(errno));
    }
    harness.input = memfd_create("input", MFD_CLOEXEC);
    if (harness.input < 0) {
        die("there is no file for inputs: %s", strerror(errno));
    }
    if (pipe2(harness.output, O_CLOEXEC | O_NONBLOCK)) {
        die("there is no pipe for outputs: %s", strerror(errno));
    }
    /* TARGET's end blocks, as programs expect it */
    if (fcntl(harness.output[1], F_SETFL, 0)) {
        die("the pipe for outputs cannot be set up: %s", strerror(errno));
    }
}

/* 0 or an errno */
static int give_input(const uint8_t *data, size_t len)
{
    while (len) {
        ssize_t n = write(harness.input, data, len);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return errno;
        }
        data += n;
        len -= n;
    }
    return lseek(harness.input, 0, SEEK_SET) < 0 ? errno : 0;
}

/* 0 or an errno; what TARGET leaves behind can be killed with its group */
static int start(pid_t *pid)
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
    error = posix_spawn_file_actions_adddup2(&actions, harness.input, 0);
    error = error ?: posix_spawn_file_actions_adddup2(&actions,
                                                      harness.output[1], 1);
    error = error ?: posix_spawn_file_actions_adddup2(&actions,
                                                      harness.output[1], 2);
    error = error ?: posix_spawnattr_setpgroup(&attr, 0);
    error = error ?: posix_spawnattr_setsigmask(&attr, &harness.mask);
    error = error ?: posix_spawnattr_setsigdefault(&attr, &defaults);
    error = error ?: posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP |
                                              POSIX_SPAWN_SETSIGMASK |
                                              POSIX_SPAWN_SETSIGDEF);
    error = error ?: posix_spawnp(pid, options.target[0], &actions, &attr,
                                  options.target, environ);
    posix_spawnattr_destroy(&attr);
out:
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

/* Take what there is; false at the end of the file */
static bool drain(struct result *result, uint8_t *output, uint32_t size)
{
    uint8_t buffer[4096];

    for (;;) {
        uint32_t room = size - result->output_len;
        ssize_t n = read(harness.output[0], buffer, sizeof(buffer));

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

static void follow(pid_t pid, uint64_t begin, struct result *result,
                   uint8_t *output, uint32_t size)
{
    struct pollfd poll = { .fd = harness.output[0], .events = POLLIN };
    sigset_t mask = harness.mask;
    bool open = true;
    int status;

    sigdelset(&mask, SIGCHLD);
    for (;;) {
        uint64_t passed = now_ns() - begin;
        struct timespec left;
        pid_t ended = waitpid(pid, &status, WNOHANG);

        if (ended == 0 && options.timeout_ns && passed >= options.timeout_ns) {
            kill(-pid, SIGKILL);
            do {
                ended = waitpid(pid, &status, 0);
            } while (ended < 0 && errno == EINTR);
            result->kind = RING_RESULT_TIMEOUT;
        }
        if (ended) {
            break;
        }
        left = timespec_of(options.timeout_ns - passed);
        ppoll(&poll, open, options.timeout_ns ? &left : NULL, &mask);
        open = open && drain(result, output, size);
    }
    result->run_ns = now_ns() - begin;
    if (open) {
        drain(result, output, size);
    }
    if (result->kind == RING_RESULT_TIMEOUT) {
        return;
    }
    result->kind = WIFSIGNALED(status) ? RING_RESULT_SIGNAL
                                       : RING_RESULT_EXITED;
    result->code = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

static void run(struct result *result, const struct ring *ring,
                struct ring_entry *entry)
{
    uint32_t len = atomic_load_explicit(&entry->input_len,
                                        memory_order_relaxed);
    uint64_t begin = now_ns();
    pid_t pid;
    int error;

    error = len > ring->input_size ? EMSGSIZE
                                   : give_input(ring_input(entry), len);
    error = error ?: start(&pid);
    if (error) {
        result->kind = RING_RESULT_ERROR;
        result->code = error;
        return;
    }
    /* the end of the file is there when TARGET's last child has ended */
    close(harness.output[1]);
    follow(pid, begin, result, ring_output(ring, entry), ring->output_size);
}

/* The ring */

static uint64_t wait_for_input(struct ring *ring)
{
    uint64_t ns = SHORTEST_NAP_NS;
    uint64_t number;

    for (unsigned i = 0;; i++) {
        /* the host may format it at any time */
        if (ring_open(ring, harness.region, harness.size)) {
            if (ring_next(ring, &number)) {
                return number;
            }
            ring_set_state(ring, RING_STATE_READY);
        }
        if (i >= SPINS) {
            nap(ns);
            ns = ns * 2 < LONGEST_NAP_NS ? ns * 2 : LONGEST_NAP_NS;
        }
    }
}

static void serve_one(void)
{
    struct result result = { .kind = RING_RESULT_NONE };
    struct ring_entry *entry;
    struct ring ring;
    uint64_t number = wait_for_input(&ring);

    ring_begin(&ring, number);
    ring_set_state(&ring, RING_STATE_BUSY);
    entry = ring_at(&ring, number);
    run(&result, &ring, entry);
    if (!ring_is_current(&ring, number)) {
        return;         /* the host has begun anew: nobody wants it */
    }
    entry->kind = result.kind;
    entry->code = result.code;
    entry->output_len = result.output_len;
    entry->output_total = result.output_total;
    entry->run_ns = result.run_ns;
    entry->generation = snapctl_generation(harness.device);
    ring_set_state(&ring, RING_STATE_DONE);
    ring_complete(&ring, number);
}

static void open_device(void)
{
    uint32_t features;
    int ret = snapctl_open(&harness.device, options.device);

    if (ret < 0) {
        die("%s: %s", options.device ?: "the device cannot be opened",
            snapctl_strerror(ret));
    }
    features = snapctl_features(harness.device);
    harness.region = snapctl_region(harness.device, &harness.size);
    if (!harness.region) {
        die("the device has no persistent region for inputs and results; give "
            "it memdev=");
    }
    if (!(features & SNAPCTL_FEATURE_LOAD) && !options.no_load) {
        die("the host does not allow loads: give the device allow=load, or "
            "this program --no-load");
    }
    options.no_save |= !(features & SNAPCTL_FEATURE_SAVE);
}

static void usage(int status)
{
    fputs("Usage: snapctl-harness [--device PATH] [--slot N] [--no-save] "
          "[--no-load]\n"
          "                       [--timeout SECONDS] -- TARGET [ARGS]\n"
          "\n"
          "Runs TARGET with each input of the ring in the persistent region on "
          "its stdin,\nwrites what becomes of it into the ring, and has the "
          "guest taken back.\n"
          "\n"
          "--no-save    the host saves the guest, while this waits for the "
          "first input\n"
          "             (so it is where the device does not allow saves)\n"
          "--no-load    the host takes it back, when the result is there\n"
          "--slot       where it is saved (default: 0)\n"
          "--timeout    TARGET is killed then (default: 10; 0 for never)\n",
          status ? stderr : stdout);
    exit(status);
}

static void bad(const char *option, const char *value)
{
    fprintf(stderr, "snapctl-harness: '%s' is no value for %s; see "
            "snapctl-harness --help\n", value, option);
    exit(2);
}

static void parse(int argc, char **argv)
{
    static const struct option known[] = {
        { "device", required_argument, NULL, 'd' },
        { "slot", required_argument, NULL, 's' },
        { "timeout", required_argument, NULL, 't' },
        { "no-save", no_argument, NULL, 'S' },
        { "no-load", no_argument, NULL, 'L' },
        { "help", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 },
    };
    uintmax_t slot;
    double seconds;
    char *end;
    int option;

    while ((option = getopt_long(argc, argv, "+h", known, NULL)) != -1) {
        switch (option) {
        case 'd':
            options.device = optarg;
            break;
        case 's':
            errno = 0;
            slot = strtoumax(optarg, &end, 0);
            if (errno || end == optarg || *end || slot > UINT32_MAX) {
                bad("--slot", optarg);
            }
            options.slot = slot;
            break;
        case 't':
            seconds = strtod(optarg, &end);
            if (end == optarg || *end || !(seconds >= 0 && seconds < 1e9)) {
                bad("--timeout", optarg);
            }
            options.timeout_ns = seconds * 1e9;
            break;
        case 'S':
            options.no_save = true;
            break;
        case 'L':
            options.no_load = true;
            break;
        case 'h':
            usage(0);
            break;
        default:
            exit(2);
        }
    }
    if (optind == argc) {
        fputs("snapctl-harness: TARGET is missing; see snapctl-harness "
              "--help\n", stderr);
        exit(2);
    }
    options.target = argv + optind;
}

int main(int argc, char **argv)
{
    int ret;

    parse(argc, argv);
    open_device();
    prepare();
    if (!options.no_save) {
        ret = snapctl_save(harness.device, options.slot, COMMAND_TIMEOUT_MS);
        if (ret < 0) {
            die("the guest cannot be saved: %s", snapctl_strerror(ret));
        }
    }
    serve_one();
    while (options.no_load) {
        nap(LONGEST_NAP_NS);
    }
    ret = snapctl_load(harness.device, options.slot, COMMAND_TIMEOUT_MS);
    die("the guest cannot be taken back: %s", snapctl_strerror(ret));
}
