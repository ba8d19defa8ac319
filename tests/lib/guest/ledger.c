/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Writes with fsync, and knows in RAM what must be on the disk.
 *
 *   ledger raw DEVICE FILE
 *   ledger files FOLDER FILE
 *
 * A round changes some blocks of the device, or one file of the folder, has
 * fsync() finish, notes the change in RAM, and compares some of the disk with
 * the notes.  SIGUSR1 asks for a comparison of all of it.  Reads go past the
 * page cache, and for a folder all caches are dropped before.  Each write has a
 * number of RDRAND, so two runs after one snapshot never write the same: a
 * write that is too new or too old for the notes is found.  SIGTERM ends the
 * program after a round and a last comparison.
 *
 * FILE has the number of rounds, the number of comparisons that were asked for,
 * and the first difference.
 */

#define _GNU_SOURCE

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rdrand.h"

#define BLOCK       4096
#define SECTOR      512
#define BLOCKS      128         /* of the device */
#define FILES       24
#define MOST        8           /* blocks of a file, or of a round */
#define SAMPLE      16          /* blocks that each round compares */

struct stamp {
    uint64_t number;
    uint64_t block;             /* of the device, or of which file */
    uint64_t sector;
};

static unsigned char data[MOST * BLOCK] __attribute__((aligned(BLOCK)));
static uint64_t numbers[BLOCKS];        /* the notes; 0: zeroes, or no file */
static uint64_t rounds, compared;
static int cached_fd, direct_fd, report_fd, folder_fd;
static volatile sig_atomic_t wanted, over;

static void on_usr1(__attribute__((unused)) int sig)
{
    wanted = 1;
}

static void on_term(__attribute__((unused)) int sig)
{
    over = 1;
}

static void report(const char *result)
{
    char line[200];
    int len = snprintf(line, sizeof(line), "%12llu %6llu %-120s\n",
                       (unsigned long long)rounds,
                       (unsigned long long)compared, result);

    if (pwrite(report_fd, line, len, 0) != len) {
        _exit(3);
    }
}

static void found(const char *what, uint64_t at, uint64_t is, uint64_t expected)
{
    char line[120];

    snprintf(line, sizeof(line), "bad %s at %llu: %llx not %llx", what,
             (unsigned long long)at, (unsigned long long)is,
             (unsigned long long)expected);
    report(line);
    exit(1);
}

static void check(bool ok, const char *what)
{
    if (!ok) {
        found(what, 0, errno, 0);
    }
}

static void fill(uint64_t number, uint64_t block, size_t size)
{
    for (size_t i = 0; i < size / SECTOR; i++) {
        *(struct stamp *)(data + i * SECTOR) =
            (struct stamp){ number, block, i };
    }
}

static void compare(uint64_t number, uint64_t block, size_t size)
{
    for (size_t i = 0; i < size / SECTOR; i++) {
        struct stamp *stamp = (struct stamp *)(data + i * SECTOR);

        if (stamp->number != number) {
            found("content", block, stamp->number, number);
        }
        if (number && (stamp->block != block || stamp->sector != i)) {
            found("place", block, stamp->block, stamp->sector);
        }
    }
}

/* A device */

static void change_blocks(void)
{
    int fd = fresh_number() % 2 ? cached_fd : direct_fd;
    unsigned count = 1 + fresh_number() % MOST;
    uint64_t blocks[MOST], written[MOST];

    for (unsigned i = 0; i < count; i++) {
        blocks[i] = fresh_number() % BLOCKS;
        written[i] = fresh_number();
        fill(written[i], blocks[i], BLOCK);
        check(pwrite(fd, data, BLOCK, blocks[i] * BLOCK) == BLOCK, "write");
    }
    check(fsync(fd) == 0, "fsync");
    for (unsigned i = 0; i < count; i++) {
        numbers[blocks[i]] = written[i];
    }
}

static void compare_block(uint64_t block)
{
    check(pread(direct_fd, data, BLOCK, block * BLOCK) == BLOCK, "read");
    compare(numbers[block], block, BLOCK);
}

static void compare_blocks(bool all)
{
    for (unsigned i = 0; i < (all ? BLOCKS : SAMPLE); i++) {
        compare_block(all ? i : fresh_number() % BLOCKS);
    }
}

/* A folder: a file's number says how long it is */

static size_t size_of(uint64_t number)
{
    return (1 + number % MOST) * BLOCK;
}

static void write_file(const char *name, uint64_t number, uint64_t file)
{
    int fd = openat(folder_fd, name, O_WRONLY | O_CREAT, 0600);
    ssize_t size = size_of(number);

    check(fd >= 0, "open");
    fill(number, file, size);
    check(pwrite(fd, data, size, 0) == size, "write");
    check(ftruncate(fd, size) == 0, "truncate");
    check(fsync(fd) == 0, "fsync");
    close(fd);
}

static void change_file(void)
{
    uint64_t file = fresh_number() % FILES, number = fresh_number();
    char name[20];

    snprintf(name, sizeof(name), "file%u", (unsigned)file);
    switch (fresh_number() % 4) {
    case 0:                     /* in place */
    case 1:
        write_file(name, number, file);
        break;
    case 2:
        check(unlinkat(folder_fd, name, 0) == 0 || errno == ENOENT, "unlink");
        number = 0;
        break;
    default:
        write_file("new", number, file);
        check(renameat(folder_fd, "new", folder_fd, name) == 0, "rename");
        break;
    }
    check(fsync(folder_fd) == 0, "fsync of the folder");
    numbers[file] = number;
}

static void compare_file(uint64_t file)
{
    ssize_t size = size_of(numbers[file]);
    char name[20];
    struct stat st;
    int fd;

    snprintf(name, sizeof(name), "file%u", (unsigned)file);
    fd = openat(folder_fd, name, O_RDONLY | O_DIRECT);
    if (!numbers[file]) {
        check(fd < 0 && errno == ENOENT, "file that was removed");
        return;
    }
    check(fd >= 0, "open");
    check(fstat(fd, &st) == 0, "stat");
    if (st.st_size != size) {
        found("size", file, st.st_size, size);
    }
    check(pread(fd, data, size, 0) == size, "read");
    close(fd);
    compare(numbers[file], file, size);
}

static void drop_caches(void)
{
    int fd = open("/proc/sys/vm/drop_caches", O_WRONLY);

    check(fd >= 0 && write(fd, "3", 1) == 1, "drop_caches");
    close(fd);
}

static void compare_names(void)
{
    int fd = openat(folder_fd, ".", O_RDONLY | O_DIRECTORY);
    DIR *dir = fdopendir(fd);
    unsigned expected = 0, seen = 0;

    check(dir, "opendir");
    for (struct dirent *entry; (entry = readdir(dir)); ) {
        unsigned file;

        if (entry->d_name[0] == '.') {
            continue;
        }
        check(sscanf(entry->d_name, "file%u", &file) == 1 && file < FILES &&
              numbers[file], "name in the folder");
        seen++;
    }
    closedir(dir);
    for (unsigned i = 0; i < FILES; i++) {
        expected += numbers[i] != 0;
    }
    if (seen != expected) {
        found("number of files", 0, seen, expected);
    }
}

static void compare_files(bool all)
{
    if (!all) {
        compare_file(fresh_number() % FILES);
        return;
    }
    drop_caches();
    compare_names();
    for (unsigned i = 0; i < FILES; i++) {
        compare_file(i);
    }
}

static void work(void (*change)(void), void (*compare_some)(bool all))
{
    while (!over) {
        change();
        rounds++;
        compare_some(false);
        if (wanted) {
            wanted = 0;
            compare_some(true);
            compared++;
        }
        report("");
    }
    compare_some(true);
}

int main(int argc, char **argv)
{
    bool raw = argc == 4 && !strcmp(argv[1], "raw");

    if (argc != 4 || (!raw && strcmp(argv[1], "files"))) {
        return 2;
    }
    report_fd = open(argv[3], O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (raw) {
        cached_fd = open(argv[2], O_RDWR);
        direct_fd = open(argv[2], O_RDWR | O_DIRECT);
    } else {
        folder_fd = open(argv[2], O_RDONLY | O_DIRECTORY);
    }
    if (report_fd < 0 || cached_fd < 0 || direct_fd < 0 || folder_fd < 0) {
        perror(argv[2]);
        return 2;
    }
    /* the guest's shell comes first */
    setpriority(PRIO_PROCESS, 0, 10);
    signal(SIGUSR1, on_usr1);
    signal(SIGTERM, on_term);
    report("");
    work(raw ? change_blocks : change_file,
         raw ? compare_blocks : compare_files);
    return 0;
}
