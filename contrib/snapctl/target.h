/* SPDX-License-Identifier: GPL-2.0-or-later */
/* snapctl-harness: runs TARGET, once in each life of the guest */

#ifndef CONTRIB_SNAPCTL_TARGET_H
#define CONTRIB_SNAPCTL_TARGET_H

#include <stdint.h>

/* Like what ring.h has of it */
struct result {
    uint32_t kind;
    uint32_t code;
    uint32_t output_len;
    uint64_t output_total;
    uint64_t run_ns;
};

/*
 * Makes what target_run() needs, before the guest is saved: as each life takes
 * one input, it is new for each.  Returns NULL, or what is wrong; errno says
 * why.
 */
const char *target_prepare(void);

/*
 * Runs @argv with @len bytes of @input on its stdin, and kills it after
 * @timeout_ns unless that is 0; @output gets up to @size bytes.
 */
void target_run(char **argv, uint64_t timeout_ns, const uint8_t *input,
                uint32_t len, uint8_t *output, uint32_t size,
                struct result *result);

#endif
