/* SPDX-License-Identifier: GPL-2.0-or-later */
/* PCI's configuration, for the ring-3 test guest. */

#ifndef RING3_PCI_H
#define RING3_PCI_H

#include "ring3.h"

#define CONFIG_ADDRESS  0xcf8
#define CONFIG_DATA     0xcfc
#define CONFIG_ENABLE   0x80000000u
#define CONFIG_SIZE     256

#define PCI_ID          0x00
#define PCI_COMMAND     0x04
#define PCI_BAR(n)      (0x10 + 4 * (n))
#define PCI_CAPABILITIES 0x34   /* MSI-X is the only one */
#define MEMORY          0x2
#define MASTER          0x4
#define BAR_FLAGS       0xfu

/*
 * No guest of these tests has RAM here, nor a pc or q35 anything else: RAM
 * below 4 GiB ends at 3.5 GiB at most.  A region has room for 256 MiB.
 */
#define REGION_PLACE    0xe0000000
#define REGS_PLACE      0xf0000000

static inline uint32_t config_address(uint32_t devfn, uint32_t offset)
{
    return CONFIG_ENABLE | devfn << 8 | (offset & 0xfc);
}

static inline uint32_t config_read(uint32_t devfn, uint32_t offset)
{
    outl(CONFIG_ADDRESS, config_address(devfn, offset));
    return inl(CONFIG_DATA);
}

static inline void config_write(uint32_t devfn, uint32_t offset, uint32_t value)
{
    outl(CONFIG_ADDRESS, config_address(devfn, offset));
    outl(CONFIG_DATA, value);
}

#endif
