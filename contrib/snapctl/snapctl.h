/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * libsnapctl: drives the device snapctl of QEMU from user space of the guest
 *
 * Linux, without a driver: the BARs are mapped through sysfs, which takes root.
 * What the device does is in docs/specs/snapctl.rst.
 *
 * Threads: any number of them may read (features, generation, random, region)
 * through one handle.  Commands have to be serialized by the caller, also
 * between processes: the device has one STATUS, and who asks while another
 * command is pending is told what became of that one.
 *
 * Time: timeouts are in ms of CLOCK_MONOTONIC; 0 does not wait, and a negative
 * one waits for ever.  A load takes the clock of the guest back with the rest,
 * or has it leap forward, depending on the clock.  So don't take the difference
 * of a time read before and one read after a place where the guest is saved;
 * snapctl_load_ns() is in the host's time.
 */

#ifndef CONTRIB_SNAPCTL_H
#define CONTRIB_SNAPCTL_H

#include <stddef.h>
#include <stdint.h>

#include "hw/misc/snapctl-regs.h"

struct snapctl;

/* What snapctl_save() has to tell, unless it fails */
#define SNAPCTL_SAVED       0
#define SNAPCTL_LOADED      1

/* Errors.  Those of the device are its ERROR, negated. */
#define SNAPCTL_E_COMMAND   (-SNAPCTL_ERROR_COMMAND)
#define SNAPCTL_E_DENIED    (-SNAPCTL_ERROR_DENIED)
#define SNAPCTL_E_SLOT      (-SNAPCTL_ERROR_SLOT)
#define SNAPCTL_E_EMPTY     (-SNAPCTL_ERROR_EMPTY)
#define SNAPCTL_E_TOO_SOON  (-SNAPCTL_ERROR_TOO_SOON)
#define SNAPCTL_E_BUSY      (-SNAPCTL_ERROR_BUSY)
#define SNAPCTL_E_HOST      (-SNAPCTL_ERROR_HOST)
#define SNAPCTL_E_SYSTEM    (-100)      /* errno says which */
#define SNAPCTL_E_ABSENT    (-101)      /* there is no such device */
#define SNAPCTL_E_FOREIGN   (-102)      /* the device is another one */
#define SNAPCTL_E_PROTOCOL  (-103)      /* a STATUS that makes no sense */
#define SNAPCTL_E_TIMEOUT   (-104)

/*
 * @path is the device's folder, such as
 * /sys/bus/pci/devices/0000:00:04.0, or NULL for the first one there is.
 * Returns 0 and *@out, to be closed, or an error.
 */
int snapctl_open(struct snapctl **out, const char *path);

/* Unmaps: what snapctl_region() has returned goes with it.  NULL is fine. */
void snapctl_close(struct snapctl *s);

/* The folder; as long as the handle lives */
const char *snapctl_path(const struct snapctl *s);

/* A sentence without a full stop; for SNAPCTL_E_SYSTEM that of errno */
const char *snapctl_strerror(int error);

/* SNAPCTL_FEATURE_*, which never change while the guest runs */
uint32_t snapctl_features(const struct snapctl *s);
uint32_t snapctl_version(const struct snapctl *s);
uint32_t snapctl_slots(const struct snapctl *s);
uint32_t snapctl_min_interval_ms(const struct snapctl *s);

/* Of the last command: SNAPCTL_STATUS_* and SNAPCTL_ERROR_* */
uint32_t snapctl_status(const struct snapctl *s);
uint32_t snapctl_error(const struct snapctl *s);

/* Becomes higher with each load, whoever asks for it */
uint64_t snapctl_generation(const struct snapctl *s);

/* How long the guest stood still for the last load, in ns */
uint64_t snapctl_load_ns(const struct snapctl *s);

/* All bytes are of one generation */
void snapctl_random(const struct snapctl *s,
                    uint8_t bytes[SNAPCTL_RANDOM_SIZE]);

/*
 * Save the guest in @slot.  Returns SNAPCTL_SAVED, and once more
 * SNAPCTL_LOADED whenever the guest has been taken back to here; or an error,
 * and nothing has been saved.  Asks again for up to @timeout_ms if the device
 * is busy or it is too soon, and returns which of the two it was if it still
 * is then.
 */
int snapctl_save(struct snapctl *s, uint32_t slot, int timeout_ms);

/*
 * Take the guest back to @slot.  Returns nothing but errors, since otherwise
 * the caller is no more: what it is then is what it was at the save.
 * @timeout_ms as for snapctl_save().
 */
int snapctl_load(struct snapctl *s, uint32_t slot, int timeout_ms);

/*
 * Wait until the generation is not @old, for up to @timeout_ms.  Returns 0 or
 * SNAPCTL_E_TIMEOUT; *@now, which may be NULL, is the generation in both cases.
 */
int snapctl_wait(const struct snapctl *s, uint64_t old, int timeout_ms,
                 uint64_t *now);

/*
 * The persistent region, or NULL if the device has none; *@size in bytes.  It
 * is shared with the host, which may change it at any time.
 */
void *snapctl_region(const struct snapctl *s, size_t *size);

#endif
