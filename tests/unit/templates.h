/*
 * A directory of templates, and files to be written there
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_TEST_TEMPLATES_H
#define RAM_RESET_TEST_TEMPLATES_H

#include "system/ram-reset/template/file.h"

#define PAGE     4096
#define MIB      (UINT64_C(1) << 20)
#define LEN      (4 * MIB)
#define IDENTITY "snapshot 1"
#define FUTURE   INT64_MAX

extern char *path;
extern int dir;                     /* it is open */
extern uint8_t *host;               /* LEN bytes: each page has its number */

GArray *runs_of(const PrimRange *runs, unsigned nr);

/* False with @errp set if it cannot be written, in the directory @at */
bool write_as(int at, const char *identity, Error **errp);
void make(int at, const char *identity);

TemplateFile *open_made(int at, const char *identity);
void assert_refused(const char *identity, const char *part);
void assert_absent(const char *identity);
TemplateBlock *block(const TemplateFile *f, unsigned i);

/* All that is in runs of block @i is there, all else reads zero */
void assert_content(const TemplateFile *f, unsigned i);

/* All of it is there, as it was made */
void assert_whole(int at, const char *identity);

/* To be freed */
char *path_of(const char *identity);

/* Removes the file of IDENTITY */
void remove_file(void);

/* main() of such tests: @add adds them */
int templates_main(int argc, char **argv, void (*add)(void));

#endif
