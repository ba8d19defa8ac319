/* SPDX-License-Identifier: GPL-2.0-or-later */
/* libsnapctl: finds and maps the device */

#define _GNU_SOURCE

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"
#include "mmio.h"
#include "snapctl.h"

#define DEVICES     "/sys/bus/pci/devices"

static int open_in(const char *folder, const char *name, int flags)
{
    char path[PATH_MAX];

    if (snprintf(path, sizeof(path), "%s/%s", folder, name) >=
        (int)sizeof(path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return open(path, flags | O_CLOEXEC);
}

static intmax_t read_id(const char *folder, const char *name)
{
    char text[32];
    ssize_t n;
    int fd = open_in(folder, name, O_RDONLY);

    if (fd < 0) {
        return -1;
    }
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n <= 0) {
        return -1;
    }
    text[n] = '\0';
    return strtoimax(text, NULL, 16);
}

/*
 * Find the device with the lowest address, since readdir() has no fixed order
 */
static char *device_find(void)
{
    char best[NAME_MAX + 1] = "";
    char path[sizeof(DEVICES) + 1 + NAME_MAX];
    char *found = NULL;
    struct dirent *entry;
    DIR *dir = opendir(DEVICES);

    if (!dir) {
        return NULL;
    }
    while ((entry = readdir(dir))) {
        if (entry->d_name[0] == '.' ||
            (best[0] && strcmp(entry->d_name, best) > 0)) {
            continue;
        }
        snprintf(path, sizeof(path), "%s/%s", DEVICES, entry->d_name);
        if (read_id(path, "vendor") == SNAPCTL_PCI_VENDOR_ID &&
            read_id(path, "device") == SNAPCTL_PCI_DEVICE_ID) {
            snprintf(best, sizeof(best), "%s", entry->d_name);
        }
    }
    closedir(dir);
    if (best[0] && asprintf(&found, "%s/%s", DEVICES, best) < 0) {
        return NULL;
    }
    return found;
}

static int device_enable(const char *path)
{
    int fd = open_in(path, "enable", O_WRONLY);
    ssize_t n;
    int saved;

    if (fd < 0) {
        return SNAPCTL_E_SYSTEM;
    }
    n = write(fd, "1", 1);
    saved = errno;
    close(fd);
    errno = saved;
    return n == 1 ? 0 : SNAPCTL_E_SYSTEM;
}

static int device_map(const char *path, const char *name, void **at,
                      size_t *size)
{
    struct stat st;
    void *mapped = MAP_FAILED;
    int saved;
    int fd = open_in(path, name, O_RDWR | O_SYNC);

    if (fd < 0) {
        return SNAPCTL_E_SYSTEM;
    }
    if (fstat(fd, &st) == 0) {
        if (st.st_size <= 0 || (uint64_t)st.st_size > SIZE_MAX) {
            errno = st.st_size <= 0 ? ENXIO : EFBIG;
        } else {
            mapped = mmap(NULL, st.st_size, PROT_READ | PROT_WRITE,
                          MAP_SHARED, fd, 0);
        }
    }
    saved = errno;
    close(fd);
    errno = saved;
    if (mapped == MAP_FAILED) {
        return SNAPCTL_E_SYSTEM;
    }
    *at = mapped;
    *size = st.st_size;
    return 0;
}

static int map_all(struct snapctl *s)
{
    void *regs;
    size_t size;
    int ret = device_enable(s->path);

    if (ret < 0) {
        return ret;
    }
    ret = device_map(s->path, "resource0", &regs, &size);
    if (ret < 0) {
        return ret;
    }
    if (size < SNAPCTL_REGS_SIZE) {
        munmap(regs, size);
        return SNAPCTL_E_FOREIGN;
    }
    s->regs = regs;
    if (snapctl_mmio_read(regs, SNAPCTL_MAGIC) != SNAPCTL_MAGIC_VALUE ||
        snapctl_version(s) < SNAPCTL_VERSION_VALUE) {
        return SNAPCTL_E_FOREIGN;
    }
    if (snapctl_features(s) & SNAPCTL_FEATURE_REGION) {
        return device_map(s->path, "resource2", &s->region, &s->region_size);
    }
    return 0;
}

int snapctl_open(struct snapctl **out, const char *path)
{
    struct snapctl *s = calloc(1, sizeof(*s));
    int saved;
    int ret;

    if (!s) {
        return SNAPCTL_E_SYSTEM;
    }
    s->path = path ? strdup(path) : device_find();
    if (!s->path) {
        free(s);
        return path ? SNAPCTL_E_SYSTEM : SNAPCTL_E_ABSENT;
    }
    ret = map_all(s);
    if (ret < 0) {
        saved = errno;
        snapctl_close(s);
        errno = saved;
        return ret;
    }
    *out = s;
    return 0;
}

void snapctl_close(struct snapctl *s)
{
    if (!s) {
        return;
    }
    if (s->region) {
        munmap(s->region, s->region_size);
    }
    if (s->regs) {
        munmap(s->regs, SNAPCTL_REGS_SIZE);
    }
    free(s->path);
    free(s);
}
