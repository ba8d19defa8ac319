# SPDX-License-Identifier: GPL-2.0-or-later
#
# What scripts/build-qemu --machine aarch64 builds: the machine virt, one whose
# target pages are smaller than the host's, and the devices that tests plug

CONFIG_ARM_VIRT=y
CONFIG_VERSATILE=y
CONFIG_VIRTIO_PCI=y
CONFIG_VIRTIO_BLK=y
CONFIG_VIRTIO_MEM=y
CONFIG_E1000_PCI=y
CONFIG_SNAPCTL=y
