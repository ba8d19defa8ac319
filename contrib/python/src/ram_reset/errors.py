# SPDX-License-Identifier: GPL-2.0-or-later
"""The errors of this package.  Each is a sentence that names a remedy."""


class Error(Exception):
    """The base of all errors of this package."""


class StartError(Error):
    """QEMU has not started, or cannot be connected to."""


class LostError(Error):
    """QEMU has ended, or has closed the connection."""


class RefusedError(Error):
    """
    QEMU has refused a command, or has failed it.

    :ivar command: the command
    :ivar reason: QEMU's own sentence
    """

    def __init__(self, command: str, reason: str):
        super().__init__(f'QEMU refuses {command}: {reason}')
        self.command = command
        self.reason = reason


class FailedLoadError(RefusedError):
    """
    A load has failed after it had begun.  The machine stays paused, since it
    has parts of two snapshots, until a snapshot is restored.
    """


class GuestError(Error):
    """The guest does not answer, or has failed a command."""


class UsageError(Error, ValueError):
    """The arguments do not fit the machine."""


class DomainError(Error):
    """The XML of a libvirt domain is not fit for the requested change."""
