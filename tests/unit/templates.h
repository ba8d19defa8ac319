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
extern int dir;                     /* descriptor of the directory */
extern uint8_t *host;               /* LEN bytes; each page has its number */

GArray *runs_of(const PrimRange *runs, unsigned nr);

/* Writes a template in the directory @at.  False with @errp set on error */
bool write_as(int at, const char *identity, Error **errp);
void make(int at, const char *identity);

TemplateFile *open_made(int at, const char *identity);
void assert_refused(const char *identity, const char *part);
void assert_absent(const char *identity);
TemplateBlock *block(const TemplateFile *f, unsigned i);

/* Checks that block @i has the data of its runs, and reads zero elsewhere */
void assert_content(const TemplateFile *f, unsigned i);

/* Checks that all of the template is as it was made */
void assert_whole(int at, const char *identity);

/* Owned by the caller */
char *path_of(const char *identity);

/* Removes the file of IDENTITY */
void remove_file(void);

/* main() of such tests: @add adds them */
int templates_main(int argc, char **argv, void (*add)(void));

#endif
