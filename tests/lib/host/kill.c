/*
 * QEMU ends at the Nth call that changes a disk image (LD_PRELOAD)
 *
 * The test shares a file with us, $RAM_RESET_KILL.  A call counts if its file
 * is called *.qcow2, and if the test has armed us.  With a seed the host loses
 * its power: a page has only some first ones of its writes since the last flush.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
#include "../real.h"

typedef enum Kind { WRITE, FLUSH, TRUNCATE, NR_KINDS } Kind;

/* kills.py has the same */
typedef struct Control {
    _Atomic uint32_t armed, nth, count, kind, seed;
} Control;

typedef struct File {
    ino_t ino;
    int fd;                     /* a copy of one */
} File;

typedef struct Write {
    unsigned file;
    off64_t offset;
    size_t len;
    uint8_t *before, *after;
} Write;

#define PAGE      4096
#define MAX_FILES 16

static Control *control;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* In the order in which they were written to first */
static File files[MAX_FILES];
static unsigned nr_files;
/* Since the last flush of each file */
static Write *writes;
static unsigned nr_writes;

static void __attribute__((constructor)) begin(void)
{
    const char *name = getenv("RAM_RESET_KILL");
    int fd = name ? open(name, O_RDWR | O_CLOEXEC) : -1;
    void *p;

    if (fd < 0) {
        return;
    }
    p = mmap(NULL, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (p == MAP_FAILED) {
        abort();
    }
    control = p;
}

static bool is_image(int fd)
{
    char path[64], to[4096];
    ssize_t n;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    n = readlink(path, to, sizeof(to));
    return n > 6 && !memcmp(to + n - 6, ".qcow2", 6);
}

/* Whether this is the call at which QEMU ends */
static bool is_last(int fd, Kind kind)
{
    if (!control || !control->armed || !is_image(fd) ||
        ++control->count != control->nth) {
        return false;
    }
    control->kind = kind;
    return true;
}

static unsigned file_of(int fd)
{
    struct stat st;
    unsigned i = 0;

    if (fstat(fd, &st)) {
        abort();
    }
    while (i < nr_files && files[i].ino != st.st_ino) {
        i++;
    }
    if (i == nr_files) {
        if (nr_files == MAX_FILES) {
            abort();
        }
        files[nr_files++] = (File) { .ino = st.st_ino, .fd = dup(fd) };
    }
    return i;
}

/* For O_DIRECT too */
static void *new_buffer(size_t len)
{
    void *p = aligned_alloc(PAGE, (len / PAGE + 1) * PAGE);

    if (!p) {
        abort();
    }
    return memset(p, 0, len);
}

static void note_write(int fd, const struct iovec *iov, int nr, off64_t offset)
{
    Write w = { .file = file_of(fd), .offset = offset };

    for (int i = 0; i < nr; i++) {
        w.len += iov[i].iov_len;
    }
    w.before = new_buffer(w.len);
    w.after = new_buffer(w.len);
    writes = realloc(writes, (nr_writes + 1) * sizeof(Write));
    if (!writes || pread(fd, w.before, w.len, offset) < 0) {
        abort();
    }
    for (size_t at = 0, i = 0; at < w.len; at += iov[i++].iov_len) {
        memcpy(w.after + at, iov[i].iov_base, iov[i].iov_len);
    }
    writes[nr_writes++] = w;
}

static void drop_writes(unsigned file)
{
    unsigned left = 0;

    for (unsigned i = 0; i < nr_writes; i++) {
        if (writes[i].file == file) {
            free(writes[i].before);
            free(writes[i].after);
        } else {
            writes[left++] = writes[i];
        }
    }
    nr_writes = left;
}

/* How many of all writes had been made when @page was written to the disk */
static unsigned reached(unsigned file, off64_t page)
{
    uint64_t x = control->seed * UINT64_C(0x9e3779b97f4a7c15) + file * 31 + page;

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    x ^= x >> 31;
    /* all and none of them are the likely cases */
    return x % 3 == 0 ? 0 : x % 3 == 1 ? nr_writes : x / 3 % (nr_writes + 1);
}

static void lose_power(void)
{
    for (unsigned i = nr_writes; i-- > 0; ) {
        REAL(pwrite64)(files[writes[i].file].fd, writes[i].before,
                       writes[i].len, writes[i].offset);
    }
    for (unsigned i = 0; i < nr_writes; i++) {
        const Write *w = &writes[i];

        for (size_t at = 0, len; at < w->len; at += len) {
            off64_t place = w->offset + at;

            len = PAGE - place % PAGE;
            len = len < w->len - at ? len : w->len - at;
            if (i < reached(w->file, place / PAGE)) {
                REAL(pwrite64)(files[w->file].fd, w->after + at, len, place);
            }
        }
    }
}

static void end(void)
{
    if (control->seed) {
        lose_power();
    }
    kill(getpid(), SIGKILL);
    for (;;) {
        pause();
    }
}

static ssize_t write_image(int fd, const struct iovec *iov, int nr,
                           off64_t offset)
{
    ssize_t n;

    if (!control || !control->armed || !is_image(fd)) {
        return REAL(pwritev64)(fd, iov, nr, offset);
    }
    pthread_mutex_lock(&lock);
    if (is_last(fd, WRITE)) {
        end();
    }
    if (control->seed) {
        note_write(fd, iov, nr, offset);
    }
    n = REAL(pwritev64)(fd, iov, nr, offset);
    pthread_mutex_unlock(&lock);
    return n;
}

ssize_t pwrite64(int fd, const void *buf, size_t len, off64_t offset)
{
    struct iovec iov = { .iov_base = (void *)buf, .iov_len = len };

    return write_image(fd, &iov, 1, offset);
}

ssize_t pwritev64(int fd, const struct iovec *iov, int nr, off64_t offset)
{
    return write_image(fd, iov, nr, offset);
}

int fdatasync(int fd)
{
    int ret;

    pthread_mutex_lock(&lock);
    if (is_last(fd, FLUSH)) {
        end();
    }
    ret = REAL(fdatasync)(fd);
    if (ret == 0 && nr_writes) {
        drop_writes(file_of(fd));
    }
    pthread_mutex_unlock(&lock);
    return ret;
}

int ftruncate64(int fd, off64_t len)
{
    pthread_mutex_lock(&lock);
    if (is_last(fd, TRUNCATE)) {
        end();
    }
    pthread_mutex_unlock(&lock);
    return REAL(ftruncate64)(fd, len);
}

int fallocate64(int fd, int mode, off64_t offset, off64_t len)
{
    pthread_mutex_lock(&lock);
    if (is_last(fd, TRUNCATE)) {
        end();
    }
    pthread_mutex_unlock(&lock);
    return REAL(fallocate64)(fd, mode, offset, len);
}
