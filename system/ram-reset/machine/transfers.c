/*
 * RAM reset: transfers on buses that a load does not end
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "hw/i2c/i2c.h"
#include "system/ram-reset-compat.h"
#include "system/ram-reset/machine/transfers.h"

/* The load gives its devices their state, so they need not see the end */
static int transfers_end(BusState *qbus, void *opaque)
{
    I2CBus *bus = (I2CBus *)object_dynamic_cast(OBJECT(qbus), TYPE_I2C_BUS);

    I2CNode *node, *next;

    if (bus) {
        QLIST_FOREACH_SAFE(node, &bus->current_devs, next, next) {
            QLIST_REMOVE(node, next);
            g_free(node);
        }
        bus->broadcast = false;
    }
    return 0;
}

void ram_reset_end_transfers(void)
{
    qbus_walk_children(sysbus_get_default(), NULL, transfers_end, NULL, NULL,
                       NULL);
}
