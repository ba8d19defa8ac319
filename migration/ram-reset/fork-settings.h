/*
 * Settings of a migration that forks the machine
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_RAM_RESET_FORK_SETTINGS_H
#define MIGRATION_RAM_RESET_FORK_SETTINGS_H

typedef struct ForkSettings {
    bool mapped_ram, pause;
    uint64_t max_bandwidth, downtime;
} ForkSettings;

/*
 * All need the BQL.
 *
 * fork_settings_are_able: whether the user's settings allow a fork.
 *
 * fork_settings_get: the settings of now.
 *
 * fork_settings_set: sets those of a fork.
 *
 * fork_settings_set_back: sets @before again; a setting that the user has
 * changed meanwhile stays.
 */
bool fork_settings_are_able(Error **errp);
ForkSettings fork_settings_get(void);
bool fork_settings_set(Error **errp);
bool fork_settings_set_back(const ForkSettings *before, Error **errp);

#endif
