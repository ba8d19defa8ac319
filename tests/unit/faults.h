/*
 * Calls that fail when a test wants them to
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_TEST_FAULTS_H
#define RAM_RESET_TEST_FAULTS_H

/*
 * The linker leads calls of the code under test to faults-wrap.c (--wrap),
 * which counts them kind by kind and has some fail.  A sweep does an operation
 * again and again: with the 1st call of a kind failing, the 2nd and so on until
 * no call is left to fail; each with each error that it may plausibly have, for
 * that call alone or for all from it on; and so kind by kind.
 */
typedef enum FaultKind {
    FAULT_CLOSE, FAULT_DUP3, FAULT_FACCESSAT, FAULT_FALLOCATE, FAULT_FCNTL,
    FAULT_FDOPENDIR, FAULT_FLOCK, FAULT_FSTAT, FAULT_FSTATAT, FAULT_FSTATFS,
    FAULT_FSTATVFS, FAULT_FSYNC, FAULT_FTRUNCATE, FAULT_FUTIMENS,
    FAULT_GETRLIMIT, FAULT_GET_CONTENTS, FAULT_INOTIFY_ADD_WATCH,
    FAULT_INOTIFY_INIT, FAULT_IOCTL, FAULT_LSEEK, FAULT_LSTAT, FAULT_MADVISE,
    FAULT_MEMFD_CREATE, FAULT_MINCORE, FAULT_MMAP, FAULT_MREMAP, FAULT_MUNMAP,
    FAULT_OPEN, FAULT_OPENAT, FAULT_PREAD, FAULT_PWRITE, FAULT_READ,
    FAULT_READDIR, FAULT_READLINK, FAULT_REALLOC, FAULT_RENAMEAT, FAULT_SYSCALL,
    FAULT_TRY_MALLOC, FAULT_UNLINK, FAULT_UNLINKAT,
    FAULT_KINDS
} FaultKind;

/* No errno: half of what was asked for is read or written, and no more */
#define FAULT_SHORT (-1)

typedef enum FaultMode {
    FAULT_ONCE,
    FAULT_FROM_THEN_ON,
    /* It does nothing, and says that it has: a bug that is planted */
    FAULT_LIE,
} FaultMode;

const char *fault_name(FaultKind kind);

/* Errors that a call of @kind may have, up to a 0 */
const int *fault_errors(FaultKind kind);

/* The @nth call of @kind from now on fails with @err; 0: none does */
void faults_arm(FaultKind kind, unsigned nth, int err, FaultMode mode);

/*
 * Calls are neither counted nor do they fail any more.  Mappings
 * that munmap() was not let unmap are unmapped.  Returns how many have failed.
 */
unsigned faults_disarm(void);

/*
 * Beside that each call of @kind fails while others are counted, as on a kernel
 * that does not have it; FAULT_KINDS: no more.
 */
void faults_lack(FaultKind kind);

/* The error that has been armed for @kind, 0 if another kind has been */
int faults_error(FaultKind kind);

/*
 * An operation.  @setup: makes its state; @run: the operation, true if it says
 * that all went well; @check: asserts what must hold after it, @ok as by @run,
 * and lets go of what it has made; @teardown: the rest.
 */
typedef struct FaultTest {
    void *(*setup)(const void *param);
    bool (*run)(void *state);
    void (*check)(void *state, bool ok);
    void (*teardown)(void *state);
} FaultTest;

/*
 * Nothing may be left of a failed operation, and it must succeed when it is
 * done again without faults.  Prints what was done, and how it went.
 */
void faults_sweep(const char *name, const FaultTest *test, const void *param);

/*
 * A bug that is planted, to see that a sweep finds such: calls of @kind that do
 * nothing and say that they have.  The test program has to end then, and say
 * something that matches @says.
 */
typedef struct FaultPlanted {
    const char *name;
    const FaultTest *test;
    const void *param;
    FaultKind kind;
    const char *says;
} FaultPlanted;

/* Adds a test */
void faults_add_planted(const FaultPlanted *planted);

/* Say what is wrong, and after which fault, and end the program */
G_NORETURN void faults_wrong(const char *format, ...) G_GNUC_PRINTF(1, 2);

/*
 * A new directory at @template, for mkdtemp(), to be freed; NULL if that fails.
 * Programs that planted bugs end have theirs in it, so all of it is removed.
 */
char *faults_make_dir(const char *template);
void faults_remove_dir(char *dir);

/* Fails unless sweeps have seen calls of each of @seen, up to FAULT_KINDS */
void faults_assert_seen(const FaultKind *seen);

/* Adds a test of that, which comes after sweeps */
void faults_add_seen(const FaultKind *seen);

#endif
