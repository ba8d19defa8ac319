/*
 * Rewinding: whether to track what the guest writes, or to compare all
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifdef RAM_RESET_STANDALONE
#include <glib.h>
#else
#include "qemu/osdep.h"
#endif
#include "system/ram-reset/rewind/policy.h"

/* To compare is not thought of for less */
#define WORTH_COMPARING_NS  10e6
/* What must be cheaper by, so that it does not go to and fro */
#define DECISIVE            1.5
/* Until then pages that are written to load after load are not known */
#define LOADS_TO_LEARN      3

bool rewind_choice_open(double faults_ns)
{
    return faults_ns > WORTH_COMPARING_NS;
}

void rewind_choose(RewindChoice *c, double faults_ns, double comparing_ns)
{
    if (!c->compare) {
        bool more_expensive = rewind_choice_open(faults_ns) &&
                    faults_ns > DECISIVE * comparing_ns;

        c->expensive = more_expensive ? c->expensive + 1 : 0;
        c->compare = c->expensive == LOADS_TO_LEARN;
        c->tracking = faults_ns;
        c->regret = 0;
        return;
    }
    /* Worth a try when not having tried has cost what a wasted one costs */
    c->regret = MAX(c->regret + comparing_ns - faults_ns, 0);
    if (c->regret > c->tracking) {
        c->compare = false;
        c->expensive = 0;
    }
}
