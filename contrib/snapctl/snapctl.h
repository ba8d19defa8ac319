/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * libsnapctl: drives the device snapctl of QEMU from user space of the guest
 *
 * It works in Linux without a driver: the BARs are mapped through sysfs, which
 * needs root. docs/specs/snapctl.rst describes the device.
 *
 * Threads: any number of them may read (features, generation, random, region)
 * through one handle.  The caller must serialize commands, also between
 * processes: the device has one STATUS, and a caller that asks while another
 * command is pending gets the result of that one.
 *
 * Time: timeouts are in ms of CLOCK_MONOTONIC; 0 does not wait, and a negative
 * one waits for ever.  A load takes the clock of the guest back with the rest,
 * or makes it jump forward, depending on the clock.  So do not subtract a time
 * read before a save from one read after it; snapctl_load_ns() is in the host's
 * time.
 */

#ifndef CONTRIB_SNAPCTL_H
#define CONTRIB_SNAPCTL_H

#include <stddef.h>
#include <stdint.h>

#include "hw/misc/snapctl-regs.h"

struct snapctl;

/* Results of snapctl_save(), unless it fails */
#define SNAPCTL_SAVED       0
#define SNAPCTL_LOADED      1

/* Errors. An error of the device is its ERROR, negated. */
#define SNAPCTL_E_COMMAND   (-SNAPCTL_ERROR_COMMAND)
#define SNAPCTL_E_DENIED    (-SNAPCTL_ERROR_DENIED)
#define SNAPCTL_E_SLOT      (-SNAPCTL_ERROR_SLOT)
#define SNAPCTL_E_EMPTY     (-SNAPCTL_ERROR_EMPTY)
#define SNAPCTL_E_TOO_SOON  (-SNAPCTL_ERROR_TOO_SOON)
#define SNAPCTL_E_BUSY      (-SNAPCTL_ERROR_BUSY)
#define SNAPCTL_E_HOST      (-SNAPCTL_ERROR_HOST)
#define SNAPCTL_E_LIMIT     (-SNAPCTL_ERROR_LIMIT)
#define SNAPCTL_E_SYSTEM    (-100)      /* see errno */
#define SNAPCTL_E_ABSENT    (-101)      /* there is no such device */
#define SNAPCTL_E_FOREIGN   (-102)      /* it is another device */
#define SNAPCTL_E_PROTOCOL  (-103)      /* invalid STATUS */
#define SNAPCTL_E_TIMEOUT   (-104)

/*
 * @path is the device's folder, such as /sys/bus/pci/devices/0000:00:04.0, or
 * NULL for the first device.  Returns 0 and *@out, to be closed, or an error.
 */
int snapctl_open(struct snapctl **out, const char *path);

/* This unmaps the result of snapctl_region(). NULL is allowed. */
void snapctl_close(struct snapctl *s);

/* The folder; valid as long as the handle */
const char *snapctl_path(const struct snapctl *s);

/* A sentence without a full stop; for SNAPCTL_E_SYSTEM the one of errno */
const char *snapctl_strerror(int error);

/* SNAPCTL_FEATURE_*, which never change while the guest runs */
uint32_t snapctl_features(const struct snapctl *s);
uint32_t snapctl_version(const struct snapctl *s);
uint32_t snapctl_slots(const struct snapctl *s);
uint32_t snapctl_min_interval_ms(const struct snapctl *s);

/* The state of the last command: SNAPCTL_STATUS_* and SNAPCTL_ERROR_* */
uint32_t snapctl_status(const struct snapctl *s);
uint32_t snapctl_error(const struct snapctl *s);

/* Rises with each load, by the guest or by the host */
uint64_t snapctl_generation(const struct snapctl *s);

/* The time that the guest stood still for the last load, in ns */
uint64_t snapctl_load_ns(const struct snapctl *s);

/* All bytes are of one generation */
void snapctl_random(const struct snapctl *s,
                    uint8_t bytes[SNAPCTL_RANDOM_SIZE]);

/*
 * Save the guest in @slot.  Returns SNAPCTL_SAVED, and again SNAPCTL_LOADED
 * whenever this snapshot has been loaded; or an error, and nothing has been
 * saved.  If the device is busy, or it is too soon, this tries again for up to
 * @timeout_ms, and then returns that error.
 */
int snapctl_save(struct snapctl *s, uint32_t slot, int timeout_ms);

/*
 * Load the snapshot in @slot.  This returns only errors: after a load the
 * caller is again what it was at the save.  @timeout_ms as for snapctl_save().
 */
int snapctl_load(struct snapctl *s, uint32_t slot, int timeout_ms);

/*
 * Wait until the generation differs from @old, for up to @timeout_ms.  Returns
 * 0 or SNAPCTL_E_TIMEOUT; *@now, which may be NULL, is the generation in both
 * cases.
 */
int snapctl_wait(const struct snapctl *s, uint64_t old, int timeout_ms,
                 uint64_t *now);

/*
 * The persistent region, or NULL if the device has none; *@size in bytes.  It
 * is shared with the host, which may change it at any time.
 */
void *snapctl_region(const struct snapctl *s, size_t *size);

#endif
