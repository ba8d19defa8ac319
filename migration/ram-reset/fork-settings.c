/*
 * Settings of a migration that forks the machine
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qapi/qapi-commands-migration.h"
#include "system/runstate.h"
#include "migration/misc.h"
#include "migration/migration.h"
#include "migration/options.h"
#include "migration/ram-reset/fork-settings.h"

/* The guest stands while pages are written that it has changed lately */
#define DOWNTIME_MS 10

static const ForkSettings fork_settings = {
    .mapped_ram = true, .pause = true,
    .max_bandwidth = SIZE_MAX, .downtime = DOWNTIME_MS,
};

/* QEMU itself refuses others together with mapped-ram */
bool fork_settings_are_able(Error **errp)
{
    const char *capability = migrate_ignore_shared() ? "x-ignore-shared"
                             : migrate_return_path() ? "return-path"
                             : migrate_colo() ? "x-colo" : NULL;

    if (migration_is_running() || runstate_check(RUN_STATE_INMIGRATE)) {
        error_setg(errp, "a migration is running, wait for its end");
    } else if (capability) {
        error_setg(errp, "migration capability '%s' is on, set it to off",
                   capability);
    } else if (migrate_mode() != MIG_MODE_NORMAL) {
        error_setg(errp, "the migration mode is %s, set it to normal",
                   MigMode_str(migrate_mode()));
    } else {
        return true;
    }
    return false;
}

ForkSettings fork_settings_get(void)
{
    const MigrationParameters *p = &migrate_get_current()->parameters;

    return (ForkSettings) {
        .mapped_ram = migrate_mapped_ram(),
        .pause = migrate_pause_before_switchover(),
        .max_bandwidth = p->max_bandwidth, .downtime = p->downtime_limit,
    };
}

static bool fork_settings_apply(const ForkSettings *s, Error **errp)
{
    MigrationCapabilityStatus states[] = {
        { MIGRATION_CAPABILITY_MAPPED_RAM, s->mapped_ram },
        { MIGRATION_CAPABILITY_PAUSE_BEFORE_SWITCHOVER, s->pause },
    };
    MigrationCapabilityStatusList second = { NULL, &states[1] };
    MigrationCapabilityStatusList first = { &second, &states[0] };
    MigrateSetParameters p = {
        .has_max_bandwidth = true, .max_bandwidth = s->max_bandwidth,
        .has_downtime_limit = true, .downtime_limit = s->downtime,
    };
    ERRP_GUARD();

    qmp_migrate_set_capabilities(&first, errp);
    if (!*errp) {
        qmp_migrate_set_parameters(&p, errp);
    }
    return !*errp;
}

bool fork_settings_set(Error **errp)
{
    return fork_settings_apply(&fork_settings, errp);
}

bool fork_settings_set_back(const ForkSettings *before, Error **errp)
{
    const ForkSettings *ours = &fork_settings;
    ForkSettings s = fork_settings_get();

    s.mapped_ram = before->mapped_ram;
    s.pause = before->pause;
    if (s.max_bandwidth == ours->max_bandwidth) {
        s.max_bandwidth = before->max_bandwidth;
    }
    if (s.downtime == ours->downtime) {
        s.downtime = before->downtime;
    }
    return fork_settings_apply(&s, errp);
}
