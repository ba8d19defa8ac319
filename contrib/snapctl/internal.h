/* SPDX-License-Identifier: GPL-2.0-or-later */

#ifndef CONTRIB_SNAPCTL_INTERNAL_H
#define CONTRIB_SNAPCTL_INTERNAL_H

#include <stddef.h>

struct snapctl {
    char *path;
    void *regs;
    void *region;
    size_t region_size;
};

#endif
