/* SPDX-License-Identifier: GPL-2.0-or-later */
/* snapctl-harness: runs TARGET, once in each life of the guest */

#ifndef CONTRIB_SNAPCTL_TARGET_H
#define CONTRIB_SNAPCTL_TARGET_H

#include <stdint.h>

/* The same members as in ring.h */
struct result {
    uint32_t kind;
    uint32_t code;
    uint32_t output_len;
    uint64_t output_total;
    uint64_t run_ns;
};

/*
 * Makes the files that target_run() needs, before the guest is saved: each load
 * gives a new copy of them for one input.  Returns NULL, or a sentence with the
 * failure; errno has the reason.
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
