/* SPDX-License-Identifier: GPL-2.0-or-later */
/* snapctl: the device snapctl from the guest's command line */

#define _GNU_SOURCE

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "snapctl.h"

#define RETRY_MS    5000
#define FOREVER     (-1)

static const char usage_text[] =
    "Usage: snapctl [--device PATH] [--timeout SECONDS] COMMAND\n"
    "\n"
    "  info               print the device's properties\n"
    "  save [SLOT]        save the guest; print \"saved\", and \"loaded\" after "
    "each load\n"
    "  load [SLOT]        load the guest's snapshot\n"
    "  generation         print the generation, which rises with each load\n"
    "  random             print the host's random bytes, new after each load\n"
    "  wait [GENERATION]  wait until the generation changes, or is not this\n"
    "  read OFFSET LEN    copy bytes of the persistent region to stdout\n"
    "  write OFFSET       copy stdin to the persistent region\n"
    "\n"
    "--device is the device's folder below /sys/bus/pci/devices.\n"
    "--timeout: save and load ask a busy device again this long (default: "
    "5),\nand wait waits this long (default: for ever).\n";

static void tool_usage(const char *problem, const char *what)
{
    fprintf(stderr, "snapctl: %s%s; see snapctl --help\n", problem, what);
    exit(2);
}

static int tool_fail(const char *doing, int error)
{
    fprintf(stderr, "snapctl: %s: %s\n", doing, snapctl_strerror(error));
    return 1;
}

static uint64_t tool_number(const char *text, const char *what, uint64_t max)
{
    char *end;
    uintmax_t value;

    errno = 0;
    value = strtoumax(text, &end, 0);
    if (errno || *end || text[0] < '0' || text[0] > '9' || value > max) {
        fprintf(stderr, "snapctl: '%s' is not a %s; see snapctl --help\n", text,
                what);
        exit(2);
    }
    return value;
}

static int tool_milliseconds(const char *text)
{
    char *end;
    double seconds = strtod(text, &end);

    if (end == text || *end || !(seconds >= 0 && seconds <= INT_MAX / 1000)) {
        tool_usage("--timeout needs a number of seconds, not ", text);
    }
    return seconds * 1000;
}

static int tool_flushed(void)
{
    if (fflush(stdout) || ferror(stdout)) {
        fprintf(stderr, "snapctl: the output cannot be written: %s\n",
                strerror(errno));
        return 1;
    }
    return 0;
}

static void print_random(struct snapctl *s)
{
    uint8_t bytes[SNAPCTL_RANDOM_SIZE];

    snapctl_random(s, bytes);
    for (size_t i = 0; i < sizeof(bytes); i++) {
        printf("%02x", bytes[i]);
    }
    printf("\n");
}

static const char *name_of(uint32_t value, const char *const *names,
                           size_t count)
{
    return value < count ? names[value] : "unknown";
}

static int tool_info(struct snapctl *s)
{
    static const char *const statuses[] = {
        "idle", "pending", "saved", "loaded", "refused", "failed",
    };
    static const char *const errors[] = {
        "none", "command", "denied", "slot", "empty", "too-soon", "busy",
        "host", "limit",
    };
    uint32_t features = snapctl_features(s);
    size_t size;

    snapctl_region(s, &size);
    printf("device: %s\nversion: %" PRIu32 "\n", snapctl_path(s),
           snapctl_version(s));
    printf("save: %s\nload: %s\n",
           features & SNAPCTL_FEATURE_SAVE ? "allowed" : "denied",
           features & SNAPCTL_FEATURE_LOAD ? "allowed" : "denied");
    printf("slots: %" PRIu32 "\nmin-interval: %" PRIu32 " ms\n",
           snapctl_slots(s), snapctl_min_interval_ms(s));
    printf("region: %zu bytes\nmsi-x: %s\n", size,
           features & SNAPCTL_FEATURE_MSIX ? "yes" : "no");
    printf("status: %s\nerror: %s\n",
           name_of(snapctl_status(s), statuses,
                   sizeof(statuses) / sizeof(statuses[0])),
           name_of(snapctl_error(s), errors,
                   sizeof(errors) / sizeof(errors[0])));
    printf("generation: %" PRIu64 "\nload-time: %" PRIu64 " ns\nrandom: ",
           snapctl_generation(s), snapctl_load_ns(s));
    print_random(s);
    return tool_flushed();
}

static int tool_save(struct snapctl *s, uint32_t slot, int timeout)
{
    int ret = snapctl_save(s, slot, timeout);

    if (ret < 0) {
        return tool_fail("the guest cannot be saved", ret);
    }
    printf("%s, generation %" PRIu64 "\n",
           ret == SNAPCTL_LOADED ? "loaded" : "saved", snapctl_generation(s));
    return tool_flushed();
}

static int wait_for(struct snapctl *s, uint64_t old, int timeout)
{
    uint64_t now;
    int ret = snapctl_wait(s, old, timeout, &now);

    if (ret < 0) {
        return tool_fail("no load", ret);
    }
    printf("%" PRIu64 "\n", now);
    return tool_flushed();
}

static uint8_t *tool_region(struct snapctl *s, uint64_t offset, size_t *left)
{
    size_t size;
    uint8_t *at = snapctl_region(s, &size);

    if (!at) {
        fprintf(stderr, "snapctl: the device has no persistent region; give "
                "it memdev=\n");
        return NULL;
    }
    if (offset > size) {
        fprintf(stderr, "snapctl: the offset %" PRIu64 " is beyond the region, "
                "which has %zu bytes\n", offset, size);
        return NULL;
    }
    *left = size - offset;
    return at + offset;
}

static int read_region(struct snapctl *s, uint64_t offset, uint64_t len)
{
    size_t left;
    uint8_t *at = tool_region(s, offset, &left);

    if (!at) {
        return 1;
    }
    if (len > left) {
        fprintf(stderr, "snapctl: after that offset the region has %zu bytes "
                "only\n", left);
        return 1;
    }
    fwrite(at, 1, len, stdout);
    return tool_flushed();
}

static int write_region(struct snapctl *s, uint64_t offset)
{
    uint8_t buffer[4096];
    size_t left;
    uint8_t *at = tool_region(s, offset, &left);

    if (!at) {
        return 1;
    }
    for (;;) {
        ssize_t n = read(STDIN_FILENO, buffer, sizeof(buffer));

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            fprintf(stderr, "snapctl: stdin cannot be read: %s\n",
                    strerror(errno));
            return 1;
        }
        if (n == 0) {
            return 0;
        }
        if ((size_t)n > left) {
            fprintf(stderr, "snapctl: the region ends before the input does\n");
            return 1;
        }
        memcpy(at, buffer, n);
        at += n;
        left -= n;
    }
}

/* The number of arguments of each command */
static const struct {
    const char *name;
    int min;
    int max;
} commands[] = {
    { "info", 0, 0 }, { "save", 0, 1 }, { "load", 0, 1 },
    { "generation", 0, 0 }, { "random", 0, 0 }, { "wait", 0, 1 },
    { "read", 2, 2 }, { "write", 1, 1 },
};

static void tool_check(char **argv, int count)
{
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (strcmp(argv[0], commands[i].name) == 0) {
            if (count < commands[i].min) {
                tool_usage("more arguments are needed by ", argv[0]);
            }
            if (count > commands[i].max) {
                tool_usage("there are too many arguments for ", argv[0]);
            }
            return;
        }
    }
    tool_usage("there is no command ", argv[0]);
}

/*
 * Parse numbers before opening the device: wrong usage is reported in any case
 */
static int tool_run(struct snapctl **s, const char *device, char **argv,
                    int count, int timeout)
{
    const char *command = argv[0];
    bool saves = strcmp(command, "save") == 0;
    bool loads = strcmp(command, "load") == 0;
    uint64_t first = !count ? 0 : saves || loads
                     ? tool_number(argv[1], "slot", UINT32_MAX)
                     : tool_number(argv[1], "number", UINT64_MAX);
    uint64_t len = count > 1 ? tool_number(argv[2], "length", UINT64_MAX) : 0;
    int retry = timeout == FOREVER ? RETRY_MS : timeout;
    int ret = snapctl_open(s, device);

    if (ret < 0) {
        return tool_fail(device ? device : "the device cannot be opened", ret);
    }
    if (saves) {
        return tool_save(*s, first, retry);
    }
    if (loads) {
        return tool_fail("the snapshot cannot be loaded",
                         snapctl_load(*s, first, retry));
    }
    if (strcmp(command, "info") == 0) {
        return tool_info(*s);
    }
    if (strcmp(command, "random") == 0) {
        print_random(*s);
        return tool_flushed();
    }
    if (strcmp(command, "wait") == 0) {
        return wait_for(*s, count ? first : snapctl_generation(*s), timeout);
    }
    if (strcmp(command, "read") == 0) {
        return read_region(*s, first, len);
    }
    if (strcmp(command, "write") == 0) {
        return write_region(*s, first);
    }
    printf("%" PRIu64 "\n", snapctl_generation(*s));
    return tool_flushed();
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        { "device", required_argument, NULL, 'd' },
        { "timeout", required_argument, NULL, 't' },
        { "help", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 },
    };
    const char *device = NULL;
    struct snapctl *s = NULL;
    int timeout = FOREVER;
    int option;
    int status;

    while ((option = getopt_long(argc, argv, "+h", options, NULL)) != -1) {
        switch (option) {
        case 'd':
            device = optarg;
            break;
        case 't':
            timeout = tool_milliseconds(optarg);
            break;
        case 'h':
            fputs(usage_text, stdout);
            return tool_flushed();
        default:
            return 2;
        }
    }
    if (optind == argc) {
        tool_usage("a command is missing", "");
    }
    argv += optind;
    argc -= optind;
    tool_check(argv, argc - 1);
    status = tool_run(&s, device, argv, argc - 1, timeout);
    snapctl_close(s);
    return status;
}
