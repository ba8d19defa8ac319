/*
 * RAM reset: who follows guest RAM, and which of them say what they write
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_BLOCK_LISTENERS_H
#define RAM_RESET_BLOCK_LISTENERS_H

#include "hw/virtio/vhost.h"

/*
 * Whoever maps guest RAM for a device or another process, pins it, or passes
 * it on, has a memory listener.  Such a listener is trusted, by which we mean
 * that QEMU's dirty log has all that is written on its account by the time the
 * guest has been stopped, if, and only if, it is that of
 *
 * - a network interface with the kernel's vhost or with vhost-user, or a disk
 *   or SCSI controller with vhost-user,
 * - whose back end QEMU takes for one that can be migrated: it has
 *   VHOST_F_LOG_ALL and, for vhost-user, VHOST_USER_PROTOCOL_F_LOG_SHMFD,
 * - not behind an IOMMU, by whose addresses back ends log some of it.
 *
 * Others log nothing, or parts only: the kernel's vhost-vsock and vhost-scsi
 * pass no log to vhost_get_vq_desc(), so that theirs has the rings but not the
 * data.
 *
 * What is not known is not trusted.  All functions with the BQL held.
 */

typedef enum {
    LOGGER_NETWORK,     /* begins with a buffer when it has what to put there */
    LOGGER_BLK,         /* begins with a request, and writes until it is done */
    LOGGER_SCSI,        /* the same, other than its queue of events */
} LoggerKind;

typedef struct RamResetLogger {
    struct vhost_dev *dev;
    LoggerKind kind;
} RamResetLogger;

/*
 * The name of a listener to the memory map, as the system or a device behind an
 * IOMMU sees it, other than KVM's, that may have pinned guest memory or passed
 * it on, be it trusted or not; NULL if there is none.
 */
const char *ram_reset_memory_listener(void);

/*
 * Which listener is not trusted, and what would help: a sentence, to be freed.
 * NULL if all are trusted.
 */
char *ram_reset_unlogged_listener(void);

/* Whether any vhost device is started, be its listener trusted or not */
bool ram_reset_vhost_is_started(void);

/* The devices whose listeners are trusted, an array of RamResetLogger */
GArray *ram_reset_loggers(void);

#endif
