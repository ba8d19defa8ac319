/*
 * Warnings that somebody could cause again and again
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_TEMPLATE_WARNING_H
#define RAM_RESET_TEMPLATE_WARNING_H

#define RAM_RESET_WARNING_NS INT64_C(60000000000)

/*
 * One kind of problem, zeroed at first.  It is warned of once until it is
 * over, or another one; and in any case no sooner than RAM_RESET_WARNING_NS
 * after the last time, as a guest may have it come and go.
 *
 * @text: of the last warning, or NULL
 * @at: when that was, in ns
 * @over: it has gone well since
 */
typedef struct RamResetWarning {
    char *text;
    int64_t at;
    bool over;
} RamResetWarning;

/*
 * Whether @text, which names the problem and not what has it, is to be warned
 * of @now, in ns of a clock that does not go back; then that counts as done.
 */
bool ram_reset_warning_due(RamResetWarning *w, const char *text, int64_t now);

/* It has gone well */
void ram_reset_warning_over(RamResetWarning *w);

#endif
