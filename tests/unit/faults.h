/*
 * Calls that fail when a test wants them to
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_TEST_FAULTS_H
#define RAM_RESET_TEST_FAULTS_H

/*
 * The linker leads calls of the code under test to faults-wrap.c (--wrap),
 * which counts calls of each kind and lets some fail.  A sweep repeats an
 * operation: the 1st call of a kind fails, then the 2nd, until no call is left
 * to fail.  It uses each plausible error of the call, for this call alone or
 * for all calls from it on.  It does so for each kind.
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

/* No errno: only half of the requested bytes are read or written */
#define FAULT_SHORT (-1)

typedef enum FaultMode {
    FAULT_ONCE,
    FAULT_FROM_THEN_ON,
    /* The call does nothing but reports success: a planted bug */
    FAULT_LIE,
} FaultMode;

const char *fault_name(FaultKind kind);

/* Errors that a call of @kind may have; 0 ends the list */
const int *fault_errors(FaultKind kind);

/* Let the @nth call of @kind from now on fail with @err; 0 for none */
void faults_arm(FaultKind kind, unsigned nth, int err, FaultMode mode);

/*
 * Stop counting calls and letting them fail.  Unmaps the mappings of failed
 * calls of munmap().  Returns the number of calls that have failed.
 */
unsigned faults_disarm(void);

/*
 * Also let each call of @kind fail while others are counted, as on a kernel
 * without it; FAULT_KINDS for none
 */
void faults_lack(FaultKind kind);

/* The error that is armed for @kind; 0 if another kind is armed */
int faults_error(FaultKind kind);

/*
 * An operation.  @setup makes its state.  @run does it, and returns true if it
 * reports success.  @check gets this result as @ok, checks the state, and frees
 * the product of the operation.  @teardown frees the rest.
 */
typedef struct FaultTest {
    void *(*setup)(const void *param);
    bool (*run)(void *state);
    void (*check)(void *state, bool ok);
    void (*teardown)(void *state);
} FaultTest;

/*
 * A failed operation must leave nothing, and must succeed when repeated without
 * faults.  Prints the steps and their results.
 */
void faults_sweep(const char *name, const FaultTest *test, const void *param);

/*
 * Check that a sweep finds a planted bug: calls of @kind do nothing but report
 * success.  The test program must then end with a message that matches @says.
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

/* Print the error and the fault before it, and end the program */
G_NORETURN void faults_wrong(const char *format, ...) G_GNUC_PRINTF(1, 2);

/*
 * A new directory by @template, see mkdtemp(), owned by the caller; NULL if
 * that fails.  Programs that a planted bug ends have their directories in it,
 * so all of it is removed.
 */
char *faults_make_dir(const char *template);
void faults_remove_dir(char *dir);

/*
 * Fails unless sweeps have seen calls of each kind of @seen, which FAULT_KINDS
 * ends
 */
void faults_assert_seen(const FaultKind *seen);

/* Adds a test of that, which runs after all sweeps */
void faults_add_seen(const FaultKind *seen);

#endif
