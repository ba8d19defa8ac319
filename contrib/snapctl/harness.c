/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * snapctl-harness: runs a program once for each input, each time in a guest
 * that has been reset to the same snapshot.
 *
 * The ring of ring.h has inputs and results.  There is no loop: the guest is
 * saved, takes one input, runs TARGET, writes the result, and requests a load,
 * after which it continues behind the save.
 */

#define _GNU_SOURCE

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ring.h"
#include "snapctl.h"
#include "target.h"

#define TARGET_TIMEOUT_NS   (10 * 1000000000ULL)
#define COMMAND_TIMEOUT_MS  30000
/* If the ring is empty, poll it often at first, then sleep longer and longer */
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

static struct {
    struct snapctl *device;
    void *region;
    size_t size;
} harness;

static void harness_die(const char *format, ...)
    __attribute__((format(printf, 1, 2)))
    __attribute__((noreturn));
static void harness_die(const char *format, ...)
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

static void harness_nap(uint64_t ns)
{
    struct timespec t = { .tv_nsec = ns };

    nanosleep(&t, NULL);
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
            harness_nap(ns);
            ns = ns * 2 < LONGEST_NAP_NS ? ns * 2 : LONGEST_NAP_NS;
        }
    }
}

static void serve_one(void)
{
    struct result result = { .kind = RING_RESULT_ERROR, .code = EMSGSIZE };
    struct ring_entry *entry;
    struct ring ring;
    uint64_t number = wait_for_input(&ring);
    uint32_t len;

    ring_begin(&ring, number);
    ring_set_state(&ring, RING_STATE_BUSY);
    entry = ring_at(&ring, number);
    len = atomic_load_explicit(&entry->input_len, memory_order_relaxed);
    if (len <= ring.input_size) {
        target_run(options.target, options.timeout_ns, ring_input(entry), len,
                   ring_output(&ring, entry), ring.output_size, &result);
    }
    if (!ring_is_current(&ring, number)) {
        return;         /* the host has restarted: drop the result */
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
        harness_die("%s: %s", options.device ?: "the device cannot be opened",
                    snapctl_strerror(ret));
    }
    features = snapctl_features(harness.device);
    harness.region = snapctl_region(harness.device, &harness.size);
    if (!harness.region) {
        harness_die("the device has no persistent region for inputs and "
                    "results; give it memdev=");
    }
    if (!(features & SNAPCTL_FEATURE_LOAD) && !options.no_load) {
        harness_die("the host does not allow loads: give the device "
                    "allow=load, or this program --no-load");
    }
    options.no_save |= !(features & SNAPCTL_FEATURE_SAVE);
}

static void harness_usage(int status)
{
    fputs("Usage: snapctl-harness [--device PATH] [--slot N] [--no-save] "
          "[--no-load]\n"
          "                       [--timeout SECONDS] -- TARGET [ARGS]\n"
          "\n"
          "Runs TARGET with each input of the ring in the persistent region on "
          "its stdin,\nwrites the result into the ring, and loads the guest's "
          "snapshot again.\n"
          "\n"
          "--no-save    the host saves the guest, while this waits for the "
          "first input\n"
          "             (the default if the device does not allow saves)\n"
          "--no-load    the host loads the snapshot when it has the result\n"
          "--slot       the slot of the snapshot (default: 0)\n"
          "--timeout    kills TARGET after this time (default: 10; 0: never)\n",
          status ? stderr : stdout);
    exit(status);
}

static void harness_bad_value(const char *option, const char *value)
{
    fprintf(stderr, "snapctl-harness: '%s' is not a value for %s; see "
            "snapctl-harness --help\n", value, option);
    exit(2);
}

static void harness_parse(int argc, char **argv)
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
                harness_bad_value("--slot", optarg);
            }
            options.slot = slot;
            break;
        case 't':
            seconds = strtod(optarg, &end);
            if (end == optarg || *end || !(seconds >= 0 && seconds < 1e9)) {
                harness_bad_value("--timeout", optarg);
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
            harness_usage(0);
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
    const char *problem;
    int ret;

    harness_parse(argc, argv);
    open_device();
    problem = target_prepare();
    if (problem) {
        harness_die("%s: %s", problem, strerror(errno));
    }
    if (!options.no_save) {
        ret = snapctl_save(harness.device, options.slot, COMMAND_TIMEOUT_MS);
        if (ret < 0) {
            harness_die("the guest cannot be saved: %s", snapctl_strerror(ret));
        }
    }
    serve_one();
    while (options.no_load) {
        harness_nap(LONGEST_NAP_NS);
    }
    ret = snapctl_load(harness.device, options.slot, COMMAND_TIMEOUT_MS);
    harness_die("the snapshot cannot be loaded: %s", snapctl_strerror(ret));
}
