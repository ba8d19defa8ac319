/*
 * Rewinding: the choice between tracking writes and comparing all pages
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset/rewind/policy.h"

/*
 * Tracking costs the guest a fault for each page that it writes to; comparing
 * costs each load the time to read all pages.  Nobody knows how many pages the
 * guest will write to before the next load.
 *
 * Tracking ends when it has cost DECISIVE times as much as comparing would
 * have, in LOADS_TO_LEARN loads in a row.  While loads compare, their number of
 * changed pages gives the cost that tracking would have had.  Its savings add
 * up; a load in which comparing saves time reduces the sum.  When the sum
 * exceeds the faults that ended tracking, tracking restarts.  This is the ski
 * rental rule: by then comparing has wasted as much as one more mistaken load
 * of tracking costs.  So a restart that is too early or too late costs at most
 * twice as much as the best choice in hindsight.
 */

/* Comparing is not considered for less */
#define WORTH_COMPARING_NS  10e6
/* Comparing must be cheaper by this factor, so that loads do not alternate */
#define DECISIVE            1.5
/* Pages that are written to load after load are not known before */
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
