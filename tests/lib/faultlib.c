/*
 * System calls of QEMU that fail when a test wants them to (LD_PRELOAD)
 *
 * The test shares a file with us, $RAM_RESET_FAULTS: there it says which call
 * is to fail, and how, and we say what there was.  Only calls that QEMU's
 * program makes itself count, not those of its libraries.  faultlib-calls.c has
 * the calls.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "faultlib.h"

static const char *const kind_names[] = {
#define X(name) #name,
    KINDS(X)
#undef X
};

Control *control;
static uintptr_t program_start, program_end;

static int find_program(struct dl_phdr_info *info, size_t size, void *opaque)
{
    (void)size;
    (void)opaque;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];

        if (p->p_type == PT_LOAD) {
            uintptr_t start = info->dlpi_addr + p->p_vaddr;

            program_start = program_start ? program_start : info->dlpi_addr;
            program_end = start + p->p_memsz;
        }
    }
    return 1;       /* the first is the program */
}

static void __attribute__((constructor)) begin(void)
{
    const char *name = getenv("RAM_RESET_FAULTS");
    int fd = name ? REAL(open64)(name, O_RDWR | O_CLOEXEC) : -1;
    void *p;

    if (fd < 0) {
        return;
    }
    dl_iterate_phdr(find_program, NULL);
    p = REAL(mmap64)(NULL, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED,
                     fd, 0);
    REAL(close)(fd);
    if (p == MAP_FAILED) {
        abort();
    }
    control = p;
    for (unsigned i = 0; i < NR_KINDS; i++) {
        snprintf(control->names[i], NAME_LEN, "%s", kind_names[i]);
    }
}

static bool counts(const void *caller)
{
    return control && control->armed && (uintptr_t)caller >= program_start &&
           (uintptr_t)caller < program_end;
}

bool fires(Kind kind, const void *caller)
{
    unsigned call;

    if (kind == NONE || !counts(caller)) {
        return false;
    }
    call = ++control->calls[kind];
    if (kind != control->kind || !control->nth || call < control->nth ||
        (call > control->nth && control->mode != FROM_THEN_ON)) {
        return false;
    }
    control->fired++;
    control->caller = (uintptr_t)caller - program_start;
    errno = control->err;
    return true;
}

/* No event that QEMU lives by is ever held back */
static bool is_inotify(int fd)
{
    char path[64], to[64] = "";

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return REAL(readlink)(path, to, sizeof(to) - 1) > 0 &&
           strstr(to, "inotify");
}

Kind kind_of(int fd, Kind kind, Kind disk)
{
    struct stat64 st;

    if (!control || !control->armed || REAL(fstat64)(fd, &st) < 0) {
        return NONE;
    }
    if (st.st_dev == control->disk_dev && st.st_ino == control->disk_ino) {
        return disk;
    }
    return S_ISREG(st.st_mode) || S_ISDIR(st.st_mode) || is_inotify(fd)
           ? kind : NONE;
}
