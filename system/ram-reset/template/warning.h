/*
 * Limit warnings that somebody could cause again and again
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_TEMPLATE_WARNING_H
#define RAM_RESET_TEMPLATE_WARNING_H

#define RAM_RESET_WARNING_NS INT64_C(60000000000)

/*
 * A kind of problem, zeroed at first.  A warning is due once for each problem,
 * until it is over, or another problem comes; and never sooner than
 * RAM_RESET_WARNING_NS after the last one, since a guest may make problems come
 * and go.
 *
 * @text: of the last warning, or NULL
 * @at: time of the last warning, in ns
 * @over: no problem since
 */
typedef struct RamResetWarning {
    char *text;
    int64_t at;
    bool over;
} RamResetWarning;

/*
 * Whether a warning with @text is due @now, in ns of a clock that does not go
 * back; if so, it counts as printed.  @text names the problem and not the file
 * that has it.
 */
bool ram_reset_warning_due(RamResetWarning *w, const char *text, int64_t now);

/* There is no problem any more */
void ram_reset_warning_over(RamResetWarning *w);

#endif
