# SPDX-License-Identifier: GPL-2.0-or-later
"""
CAPE's machinery "qemu": its QEMUs stay, and are restored.  In its file
modules/machinery/qemu.py:

>>> from ram_reset.adapters.cape import rewinding
>>> @rewinding('/run/cape/{vmname}.qmp')
... class QEMU(Machinery):
"""

import logging
import time
from typing import Any, Callable, Dict, Type, TypeVar

from ram_reset.errors import Error
from ram_reset.sync import Machine

log = logging.getLogger(__name__)

Class = TypeVar('Class')
PATIENCE = 10.0         # seconds for the monitor of a new QEMU
POLL = 0.05


def attach(path: str) -> Machine:
    """A QEMU that has just been started."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return Machine.attach(path)
        except Error:
            if time.monotonic() > end:
                raise
            time.sleep(POLL)


def _inherit(base: Any, path: str) -> Any:
    class Rewinding(base):
        """Machines by their names, also those that are stopped."""

        def __init__(self) -> None:
            super().__init__()
            self._kept: Dict[str, Machine] = {}
            self._processes: Dict[str, Any] = {}

        def _name(self, label: str) -> str:
            return str(self.db.view_machine_by_label(label).name)

        def start(self, label: str) -> None:
            name = self._name(label)
            snapshot = getattr(self.options, name).snapshot
            if name in self._kept:
                machine = self._kept[name]
                try:
                    machine.restore(machine.find(snapshot), run=True)
                    self.state[name] = self._processes[name]
                    return
                except Error as e:
                    log.warning('%s is started anew: %s', label, e)
                    self._drop(name)
            super().start(label)
            if snapshot:
                try:
                    self._kept[name] = attach(path.format(vmname=name))
                    self._processes[name] = self.state[name]
                except Error as e:
                    log.warning('%s will be started anew: %s', label, e)

        def stop(self, label: str) -> None:
            name = self._name(label)
            if name not in self._kept or not self.state.get(name):
                super().stop(label)
                return
            self.state[name] = None
            try:
                self._kept[name].pause()
            except Error as e:
                log.warning('%s has ended: %s', label, e)
                self._drop(name)

        def _drop(self, name: str) -> None:
            process = self._processes.pop(name)
            self._kept.pop(name).close()
            process.kill()
            process.wait()

        def shutdown(self) -> None:
            super().shutdown()
            for name in list(self._kept):
                self._drop(name)

    Rewinding.__name__ = base.__name__
    Rewinding.__qualname__ = base.__qualname__
    return Rewinding


def rewinding(path: str) -> 'Callable[[Type[Class]], Type[Class]]':
    """
    A decorator of CAPE's class QEMU.

    :param path: of each QEMU's QMP socket, with {vmname} as in QEMU_ARGS
    """
    def decorate(base: 'Type[Class]') -> 'Type[Class]':
        found: 'Type[Class]' = _inherit(base, path)
        return found
    return decorate
