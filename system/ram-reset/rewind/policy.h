/*
 * Rewinding: whether to track what the guest writes, or to compare all
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_REWIND_POLICY_H
#define RAM_RESET_REWIND_POLICY_H

/*
 * A guest that writes here and there to a large part of its memory waits
 * longer for the faults of being tracked than it would take to compare all of
 * it with the snapshot.  All zero to begin with, or to begin anew.
 *
 * @compare: the next load is to compare, and pages need not be tracked
 * @expensive: loads in a row in which tracking was the more expensive way
 * @tracking: what has made it compare, in ns of faults
 * @regret: what tracking would have spared since, in ns
 */
typedef struct RewindChoice {
    bool compare;
    unsigned expensive;
    double tracking, regret;
} RewindChoice;

/* Whether rewind_choose() looks at @comparing_ns at all, when tracking */
bool rewind_choice_open(double faults_ns);

/*
 * A load is over.
 *
 * @faults_ns: what the guest has waited for faults since the load before it,
 *     or would have, when comparing
 * @comparing_ns: what it takes to compare
 */
void rewind_choose(RewindChoice *c, double faults_ns, double comparing_ns);

#endif
