/*
 * A kernel's VFIO with a device that does nothing by itself, for a QEMU that
 * this is preloaded into, on a host without one
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/pci_regs.h>
#include <linux/vfio.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CONFIG_SIZE 256

static int open_any(const char *path, int flags, int mode)
{
    if (!strncmp(path, "/dev/vfio/", strlen("/dev/vfio/"))) {
        return memfd_create("vfio", MFD_CLOEXEC);
    }
    return syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

#define OPEN(name)                              \
int name(const char *path, int flags, ...)      \
{                                               \
    va_list args;                               \
    int mode;                                   \
                                                \
    va_start(args, flags);                      \
    mode = va_arg(args, int);                   \
    va_end(args);                               \
    return open_any(path, flags, mode);         \
}

OPEN(open)
OPEN(open64)
OPEN(__open_2)
OPEN(__open64_2)

/* /sys/bus/mdev need not be there */
char *realpath(const char *path, char *resolved)
{
    char *(*real)(const char *, char *) = dlsym(RTLD_NEXT, "realpath");
    char *found = real(path, resolved);
    char *link = calloc(1, 4096);

    if (!found && !resolved && readlink(path, link, 4095) > 0) {
        return link;
    }
    free(link);
    return found;
}

static int make_device(void)
{
    uint8_t config[CONFIG_SIZE] = { 0 };
    int fd = memfd_create("vfio-device", MFD_CLOEXEC);

    config[PCI_VENDOR_ID] = 0x34;
    config[PCI_VENDOR_ID + 1] = 0x12;
    config[PCI_CLASS_DEVICE + 1] = 0xff;
    return write(fd, config, sizeof(config)) == sizeof(config) ? fd : -1;
}

static int fill_device_info(struct vfio_device_info *info)
{
    info->flags = VFIO_DEVICE_FLAGS_PCI | VFIO_DEVICE_FLAGS_RESET;
    info->num_regions = VFIO_PCI_NUM_REGIONS;
    info->num_irqs = VFIO_PCI_NUM_IRQS;
    return 0;
}

static int fill_region_info(struct vfio_region_info *info)
{
    info->flags = 0;
    info->offset = 0;
    info->size = info->index == VFIO_PCI_CONFIG_REGION_INDEX ? CONFIG_SIZE : 0;
    return 0;
}

static int vfio(unsigned long request, unsigned long arg)
{
    switch (request) {
    case VFIO_GET_API_VERSION:
        return VFIO_API_VERSION;
    case VFIO_CHECK_EXTENSION:
        return arg == VFIO_TYPE1v2_IOMMU;
    case VFIO_GROUP_GET_STATUS:
        ((struct vfio_group_status *)arg)->flags = VFIO_GROUP_FLAGS_VIABLE;
        return 0;
    case VFIO_IOMMU_GET_INFO:
        ((struct vfio_iommu_type1_info *)arg)->flags = 0;
        return 0;
    case VFIO_GROUP_GET_DEVICE_FD:
        return make_device();
    case VFIO_DEVICE_GET_INFO:
        return fill_device_info((struct vfio_device_info *)arg);
    case VFIO_DEVICE_GET_REGION_INFO:
        return fill_region_info((struct vfio_region_info *)arg);
    case VFIO_SET_IOMMU:
    case VFIO_GROUP_SET_CONTAINER:
    case VFIO_GROUP_UNSET_CONTAINER:
    case VFIO_IOMMU_MAP_DMA:
    case VFIO_IOMMU_UNMAP_DMA:
    case VFIO_DEVICE_RESET:
    case VFIO_DEVICE_SET_IRQS:
        return 0;
    }
    errno = ENOTTY;
    return -1;
}

int ioctl(int fd, unsigned long request, ...)
{
    va_list args;
    unsigned long arg;

    va_start(args, request);
    arg = va_arg(args, unsigned long);
    va_end(args);
    return _IOC_TYPE(request) == VFIO_TYPE ? vfio(request, arg)
                                           : syscall(SYS_ioctl, fd, request,
                                                     arg);
}
