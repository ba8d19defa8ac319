/*
 * RAM reset: changes of the machine that end the baseline
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qobject/qdict.h"
#include "system/ram-reset-compat.h"
#include "system/ram-reset-rewind.h"
#include "system/ram-reset/rewind/dirty-log.h"
#include "system/ram-reset/rewind/events.h"
#include "system/ram-reset/rewind/points.h"
#include "system/ram-reset/rewind/tracking.h"

/* Protected by the BQL */
static struct {
    RAMBlockNotifier notifier;
    bool (*has_block)(const void *host);
} events;

/*
 * A whole load replaces the memory of blocks, and reports that as a removal.
 * The position is unknown then.
 */
static void block_added(RAMBlockNotifier *n, void *host, size_t size,
                        size_t max_size)
{
    ram_reset_drop_baseline(RAM_RESET_BLOCKER_RAM_ADDED);
    tracking_ram_added();
}

/* Memory unplugged before the baseline was taken may be removed after it */
static void block_removed(RAMBlockNotifier *n, void *host, size_t size,
                          size_t max_size)
{
    if (events.has_block(host)) {
        ram_reset_drop_baseline(RAM_RESET_BLOCKER_RAM_REMOVED);
    }
}

static void block_resized(RAMBlockNotifier *n, void *host, size_t old_size,
                          size_t new_size)
{
    ram_reset_drop_baseline(RAM_RESET_BLOCKER_RAM_RESIZED);
}

/*
 * A device may write to RAM without the log, and be unplugged before anybody
 * checks.  VFIO must be notified of the dirty log.  Most hardware refuses it,
 * but QEMU takes a refusal for impossible.
 */
static bool before_plug(DeviceListener *listener, const QDict *opts,
                        bool from_json, Error **errp)
{
    ERRP_GUARD();
    const char *driver = qdict_get_try_str(opts, "driver");

    if (!driver || !ram_reset_rewind_wanted()) {
        return false;
    }
    if (points_position()) {
        ram_reset_lose_position(RAM_RESET_BLOCKER_DEVICE_PLUGGED);
    }
    if (g_str_has_prefix(driver, "vfio-")) {
        tracking_stop();
        if (ram_reset_dirty_log_is_on()) {
            error_setg(errp, "'%s' cannot be plugged while the guest is "
                       "stopped and a ram-reset object has rewind=on", driver);
            error_append_hint(errp, "Resume the guest, then plug it.\n");
        }
    }
    return false;
}

void events_begin(bool (*has_block)(const void *host))
{
    static DeviceListener plugging = { .hide_device = before_plug };

    if (!events.has_block) {
        events.has_block = has_block;
        device_listener_register(&plugging);
        events.notifier.ram_block_added = block_added;
        events.notifier.ram_block_removed = block_removed;
        events.notifier.ram_block_resized = block_resized;
        ram_block_notifier_add(&events.notifier);
    }
}
