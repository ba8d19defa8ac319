/*
 * Rewinding: the choice between tracking writes and comparing all pages
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_REWIND_POLICY_H
#define RAM_RESET_REWIND_POLICY_H

/*
 * A guest may write to pages all over a large part of its memory.  The faults
 * of tracking then take longer than comparing all of it with the snapshot.  All
 * members are zero at the start, and after a restart.
 *
 * @compare: the next load compares, and pages need not be tracked
 * @expensive: number of loads in a row in which tracking was more expensive
 * @tracking: time of the faults that ended tracking, in ns
 * @regret: time that tracking would have saved since then, in ns
 */
typedef struct RewindChoice {
    bool compare;
    unsigned expensive;
    double tracking, regret;
} RewindChoice;

/* Whether rewind_choose() uses @comparing_ns while it tracks */
bool rewind_choice_open(double faults_ns);

/*
 * Choose the way of the next load.  Called at the end of a load.
 *
 * @faults_ns: time of the guest's faults for tracking since the previous load,
 *     or an estimate of it if this load has compared
 * @comparing_ns: time to compare all pages
 */
void rewind_choose(RewindChoice *c, double faults_ns, double comparing_ns);

#endif
