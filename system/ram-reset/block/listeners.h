/*
 * RAM reset: memory listeners, and whether they log their writes
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_BLOCK_LISTENERS_H
#define RAM_RESET_BLOCK_LISTENERS_H

#include "hw/virtio/vhost.h"

/*
 * A part of QEMU that maps guest RAM for a device or another process, pins it,
 * or passes it on, has a memory listener.  A listener is trusted if QEMU's
 * dirty log has all writes of its device when the guest has been stopped.  Only
 * these are:
 *
 * - a network interface with the kernel's vhost or with vhost-user, or a disk
 *   or SCSI controller with vhost-user,
 * - if its back end can be migrated: it has VHOST_F_LOG_ALL and, for
 *   vhost-user, VHOST_USER_PROTOCOL_F_LOG_SHMFD,
 * - and if it is not behind an IOMMU, whose addresses some back ends log.
 *
 * Other devices log nothing, or only parts: the kernel's vhost-vsock and
 * vhost-scsi pass no log to vhost_get_vq_desc(), so that their log has the
 * rings but not the data.
 *
 * An unknown device is not trusted.  All functions need the BQL.
 */

typedef enum {
    LOGGER_NETWORK,     /* uses a buffer when there is data for it */
    LOGGER_BLK,         /* uses a request at once, until it is done */
    LOGGER_SCSI,        /* the same, except for its event queue */
} LoggerKind;

typedef struct RamResetLogger {
    struct vhost_dev *dev;
    LoggerKind kind;
} RamResetLogger;

/*
 * The name of a memory listener, of the system or of a device behind an IOMMU,
 * that may have pinned guest memory or passed it on, whether trusted or not;
 * NULL if there is none.  KVM's listener does not count.
 */
const char *ram_reset_memory_listener(void);

/*
 * The listener that is not trusted, and a remedy: a sentence, to be freed.
 * NULL if all are trusted.
 */
char *ram_reset_unlogged_listener(void);

/*
 * Whether any vhost device is started, whether its listener is trusted or not
 */
bool ram_reset_vhost_is_started(void);

/* The devices with trusted listeners, an array of RamResetLogger */
GArray *ram_reset_loggers(void);

#endif
