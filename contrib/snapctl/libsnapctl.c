/* SPDX-License-Identifier: GPL-2.0-or-later */

#define _GNU_SOURCE

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "internal.h"
#include "mmio.h"
#include "snapctl.h"

/*
 * The device finishes an accepted command within some instructions of the
 * guest.  Yield the CPU only if it does not, for example because the guest is
 * stopped and migrated: a thread that sleeps when the guest is saved wakes up
 * late after each load.
 */
#define SPINS       20000
#define NAP_NS      1000000
#define BUSY_MS     5
#define LONGEST_MS  50

static uint64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void command_nap(uint64_t ns)
{
    struct timespec t = {
        .tv_sec = ns / 1000000000,
        .tv_nsec = ns % 1000000000,
    };

    nanosleep(&t, NULL);
}

static uint32_t regs_get(const struct snapctl *s, unsigned offset)
{
    return snapctl_mmio_read(s->regs, offset);
}

/* Read the halves one by one, so that this works in 32 bits as well */
static uint64_t regs_get64(const struct snapctl *s, unsigned offset)
{
    uint32_t high = regs_get(s, offset + 4);

    for (;;) {
        uint32_t low = regs_get(s, offset);
        uint32_t again = regs_get(s, offset + 4);

        if (again == high) {
            return (uint64_t)high << 32 | low;
        }
        high = again;
    }
}

/* Reading */

const char *snapctl_path(const struct snapctl *s)
{
    return s->path;
}

uint32_t snapctl_features(const struct snapctl *s)
{
    return regs_get(s, SNAPCTL_FEATURES);
}

uint32_t snapctl_version(const struct snapctl *s)
{
    return regs_get(s, SNAPCTL_VERSION);
}

uint32_t snapctl_slots(const struct snapctl *s)
{
    return regs_get(s, SNAPCTL_SLOTS);
}

uint32_t snapctl_min_interval_ms(const struct snapctl *s)
{
    return regs_get(s, SNAPCTL_MIN_INTERVAL);
}

uint32_t snapctl_status(const struct snapctl *s)
{
    return regs_get(s, SNAPCTL_STATUS);
}

uint32_t snapctl_error(const struct snapctl *s)
{
    return regs_get(s, SNAPCTL_ERROR);
}

uint64_t snapctl_generation(const struct snapctl *s)
{
    return regs_get64(s, SNAPCTL_GENERATION);
}

uint64_t snapctl_load_ns(const struct snapctl *s)
{
    return regs_get64(s, SNAPCTL_LOAD_NS);
}

void snapctl_random(const struct snapctl *s, uint8_t bytes[SNAPCTL_RANDOM_SIZE])
{
    uint64_t before;

    do {
        before = snapctl_generation(s);
        for (int i = 0; i < SNAPCTL_RANDOM_SIZE; i += 4) {
            uint32_t part = regs_get(s, SNAPCTL_RANDOM + i);

            for (int j = 0; j < 4; j++) {
                bytes[i + j] = part >> 8 * j;
            }
        }
    } while (snapctl_generation(s) != before);
}

void *snapctl_region(const struct snapctl *s, size_t *size)
{
    *size = s->region_size;
    return s->region;
}

int snapctl_wait(const struct snapctl *s, uint64_t old, int timeout_ms,
                 uint64_t *now)
{
    uint64_t start = now_ms();

    for (;;) {
        /* read the clock first: the expected load may make it jump */
        bool late = timeout_ms >= 0 &&
                    now_ms() - start >= (uint64_t)timeout_ms;
        uint64_t current = snapctl_generation(s);

        if (now) {
            *now = current;
        }
        if (current != old) {
            return 0;
        }
        if (late) {
            return SNAPCTL_E_TIMEOUT;
        }
        command_nap(NAP_NS);
    }
}

/* Commands */

static int command_once(struct snapctl *s, uint32_t slot, uint32_t command)
{
    uint32_t status;
    uint32_t error;

    snapctl_mmio_write(s->regs, SNAPCTL_SLOT, slot);
    snapctl_mmio_write(s->regs, SNAPCTL_COMMAND, command);
    for (unsigned i = 0;
         (status = snapctl_status(s)) == SNAPCTL_STATUS_PENDING; i++) {
        if (i >= SPINS) {
            command_nap(NAP_NS);
        }
    }
    switch (status) {
    case SNAPCTL_STATUS_SAVED:
        return SNAPCTL_SAVED;
    case SNAPCTL_STATUS_LOADED:
        return SNAPCTL_LOADED;
    case SNAPCTL_STATUS_REFUSED:
    case SNAPCTL_STATUS_FAILED:
        error = snapctl_error(s);
        if (error >= SNAPCTL_ERROR_COMMAND && error <= SNAPCTL_ERROR_LIMIT) {
            return -(int)error;
        }
        return SNAPCTL_E_PROTOCOL;
    default:
        return SNAPCTL_E_PROTOCOL;
    }
}

static int run_command(struct snapctl *s, uint32_t slot, uint32_t command,
                       int timeout_ms)
{
    uint64_t start = now_ms();

    for (;;) {
        int ret = command_once(s, slot, command);
        uint64_t passed = now_ms() - start;
        uint64_t ms = BUSY_MS;

        if (ret != SNAPCTL_E_BUSY && ret != SNAPCTL_E_TOO_SOON) {
            return ret;
        }
        if (timeout_ms >= 0 && passed >= (uint64_t)timeout_ms) {
            return ret;
        }
        if (ret == SNAPCTL_E_TOO_SOON) {
            /* the device does not report the rest of the interval */
            ms = snapctl_min_interval_ms(s) / 8 + 1;
            ms = ms < LONGEST_MS ? ms : LONGEST_MS;
        }
        if (timeout_ms >= 0 && ms > (uint64_t)timeout_ms - passed) {
            ms = timeout_ms - passed;
        }
        command_nap(ms * 1000000);
    }
}

int snapctl_save(struct snapctl *s, uint32_t slot, int timeout_ms)
{
    return run_command(s, slot, SNAPCTL_COMMAND_SAVE, timeout_ms);
}

int snapctl_load(struct snapctl *s, uint32_t slot, int timeout_ms)
{
    int ret;

    do {
        /*
         * LOADED is the result after a load of a snapshot that the host's user
         * has saved in the middle of this function: that load has dropped the
         * command.
         */
        ret = run_command(s, slot, SNAPCTL_COMMAND_LOAD, timeout_ms);
    } while (ret == SNAPCTL_LOADED);
    return ret == SNAPCTL_SAVED ? SNAPCTL_E_PROTOCOL : ret;
}

const char *snapctl_strerror(int error)
{
    switch (error) {
    case SNAPCTL_E_COMMAND:
        return "the device does not know the command";
    case SNAPCTL_E_DENIED:
        return "the host does not allow it (allow= of the device)";
    case SNAPCTL_E_SLOT:
        return "there is no such slot (slots= of the device)";
    case SNAPCTL_E_EMPTY:
        return "the slot's snapshot does not exist";
    case SNAPCTL_E_TOO_SOON:
        return "the last command was too short a time ago (min-interval= of "
               "the device)";
    case SNAPCTL_E_BUSY:
        return "the host cannot do it now; try again later";
    case SNAPCTL_E_HOST:
        return "the host could not save; its QMP event SNAPCTL_COMPLETED says "
               "why";
    case SNAPCTL_E_LIMIT:
        return "the snapshots of all slots have reached the host's limit "
               "(memory-limit= of the device)";
    case SNAPCTL_E_SYSTEM:
        return strerror(errno);
    case SNAPCTL_E_ABSENT:
        return "there is no device snapctl; start QEMU with -device snapctl";
    case SNAPCTL_E_FOREIGN:
        return "the device is not snapctl";
    case SNAPCTL_E_PROTOCOL:
        return "the device's answer is invalid";
    case SNAPCTL_E_TIMEOUT:
        return "nothing has happened within the timeout";
    default:
        return error < 0 ? "unknown error" : "there is no error";
    }
}
