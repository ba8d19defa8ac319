/*
 * HMP command "ram_reset_store"
 *
 * As with "migrate", the monitor waits for the job unless it is detached.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qobject/qdict.h"
#include "qemu/error-report.h"
#include "qemu/job.h"
#include "qemu/module.h"
#include "monitor/hmp.h"
#include "monitor/monitor.h"
#include "migration/ram-reset/store.h"

typedef struct StoreWait {
    char *job_id;
    Monitor *mon;               /* suspended; NULL if the job is detached */
} StoreWait;

static void store_wait_free(StoreWait *wait)
{
    g_free(wait->job_id);
    g_free(wait);
}

static void store_ended(void *opaque, int ret)
{
    StoreWait *wait = opaque;
    Error *err = NULL;

    WITH_JOB_LOCK_GUARD() {
        Job *job = job_get_locked(wait->job_id);

        if (ret < 0 && job && job->err) {
            err = error_copy(job->err);
        }
    }
    if (wait->mon && err) {
        /* No command is running, so this monitor is not the current one */
        monitor_printf(wait->mon, "Error: %s\n", error_get_pretty(err));
        error_free(err);
    } else if (err) {
        error_report_err(err);
    }
    if (wait->mon) {
        monitor_resume(wait->mon);
    }
    store_wait_free(wait);
}

static void hmp_ram_reset_store(Monitor *mon, const QDict *qdict)
{
    static unsigned jobs;
    StoreWait *wait = g_new0(StoreWait, 1);
    Error *err = NULL;

    if (!qdict_get_try_bool(qdict, "detach", false)) {
        if (monitor_suspend(mon) < 0) {
            monitor_printf(mon, "This terminal cannot wait, the job is "
                           "detached\n");
        } else {
            wait->mon = mon;
        }
    }
    wait->job_id = g_strdup_printf("ram-reset-store-%u", jobs++);
    if (!ram_reset_store(wait->job_id, qdict_get_str(qdict, "tag"),
                         qdict_get_try_int(qdict, "speed", 0), JOB_DEFAULT,
                         store_ended, wait, &err)) {
        hmp_handle_error(mon, err);
        if (wait->mon) {
            monitor_resume(mon);
        }
        store_wait_free(wait);
    }
}

static void store_hmp_init(void)
{
    monitor_register_hmp("ram_reset_store", false, hmp_ram_reset_store);
}

type_init(store_hmp_init)
