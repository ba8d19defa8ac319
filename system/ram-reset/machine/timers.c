/*
 * RAM reset: device timers that a load does not set
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/timer.h"
#include "hw/virtio/virtio-rng.h"
#include "system/ram-reset-compat.h"
#include "system/ram-reset/machine/timers.h"

/* End the period of the rate limit; the guest's next request starts another */
static int timers_expire(DeviceState *dev, void *opaque)
{
    Object *obj = object_dynamic_cast(OBJECT(dev), TYPE_VIRTIO_RNG);

    if (obj) {
        VirtIORNG *rng = VIRTIO_RNG(obj);

        timer_del(rng->rate_limit_timer);
        rng->quota_remaining = rng->conf.max_bytes;
        rng->activate_timer = true;
    }
    return 0;
}

void ram_reset_expire_timers(void)
{
    qbus_walk_children(sysbus_get_default(), timers_expire, NULL, NULL, NULL,
                       NULL);
}
