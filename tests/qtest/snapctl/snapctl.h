/*
 * snapctl tests: a machine with the device, and its registers
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef SNAPCTL_TESTS_H
#define SNAPCTL_TESTS_H

#include "qemu/units.h"
#include "qobject/qdict.h"
#include "hw/misc/snapctl-regs.h"
#include "libqos/pci.h"
#include "../ram-reset/framework.h"

#define SIZE            (16 * MiB)
/* An address to which nobody else writes */
#define PLACE           (the_machine()->ram + 2 * MiB)
#define REGION_SIZE     (1 * MiB)
#define REGION          "-object memory-backend-memfd,id=region,size=1M "
#define BOTH            "-device snapctl,id=snap0,allow=both,slots=a:b"

typedef struct Snapctl {
    Vm *vm;
    QPCIBus *bus;
    QPCIDevice *pci;
    QPCIBar regs;
} Snapctl;

/* The machine of vm_start(), unless @args name another one */
Snapctl snapctl_start(const char *args);
void snapctl_end(Snapctl *s);

/* The device of a QEMU that was started otherwise */
void snapctl_attach(Snapctl *s);
void snapctl_detach(Snapctl *s);

uint32_t snapctl_get(Snapctl *s, uint64_t reg);
uint64_t snapctl_get64(Snapctl *s, uint64_t reg);
void snapctl_set(Snapctl *s, uint64_t reg, uint32_t value);
void snapctl_get_random(Snapctl *s, uint8_t *to);
void snapctl_command(Snapctl *s, uint32_t slot, uint32_t value);

/* Returns when no command is pending */
uint32_t snapctl_settled_status(Snapctl *s);
void snapctl_expect(Snapctl *s, uint32_t status, uint32_t error);

/* Commands that must succeed */
void snapctl_save(Snapctl *s, uint32_t slot);
void snapctl_load(Snapctl *s, uint32_t slot);

/* query-snapctl, and a number in its result */
QDict *snapctl_query(Snapctl *s);
uint64_t snapctl_counted(Snapctl *s, const char *what);

/* A QMP command without arguments */
void snapctl_qmp(Snapctl *s, const char *name);

/* The status in query-status */
void snapctl_expect_run_state(Snapctl *s, const char *state);

/* The next SNAPCTL_COMPLETED; @error is a pattern of its error, or NULL */
void snapctl_expect_event(Snapctl *s, const char *action, uint32_t slot,
                          const char *tag, const char *error);

void add_snapctl_register_tests(void);
void add_snapctl_save_and_load_tests(void);
void add_snapctl_migration_tests(void);

#endif
