/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The ring-3 test guest's CPUs, for C and the assembler. */

#ifndef RING3_CPUS_H
#define RING3_CPUS_H

#define MAX_CPUS        16
#define CPU_STACK       16384
/* A CPU starts here in real mode; the page is the SIPI's vector */
#define START_PLACE     0x8000

#endif
