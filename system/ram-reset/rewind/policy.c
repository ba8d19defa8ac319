/*
 * Rewinding: whether to track what the guest writes, or to compare all
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset/rewind/policy.h"

/*
 * Tracking costs the guest a fault for each page that it writes to; comparing
 * costs each load the time to read all that there is.  What the next load's
 * guest writes nobody knows.
 *
 * Tracking is given up when it has cost DECISIVE times what comparing would
 * have, LOADS_TO_LEARN times in a row.  While loads compare, their number of
 * changed pages says what tracking would have cost.  What it would have saved
 * adds up, and is forgotten as far as comparing saves something.  When the sum
 * exceeds the faults that made an end of tracking, tracking begins anew.  That
 * is the ski rental rule: by then comparing has wasted as much as one more
 * mistaken load of tracking costs, so that going back too early, and staying
 * too long, each cost at most twice as much as they would have in hindsight.
 */

/* For less, comparing is not considered */
#define WORTH_COMPARING_NS  10e6
/* By what factor comparing must be cheaper, so that loads do not alternate */
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
    c->regret = MAX(c->regret + comparing_ns - faults_ns, 0);
    if (c->regret > c->tracking) {
        c->compare = false;
        c->expensive = 0;
    }
}
