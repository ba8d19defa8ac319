# SPDX-License-Identifier: GPL-2.0-or-later
"""
The XML of libvirt's domains: adds a ram-reset object, and reports its effect.

This folder needs only the standard library, since KubeVirt's hook is made of
it, see kubevirt.py.
"""
