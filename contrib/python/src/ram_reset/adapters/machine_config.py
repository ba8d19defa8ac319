# SPDX-License-Identifier: GPL-2.0-or-later
"""The settings of a sandbox's machine, and its boot."""

import json
from pathlib import Path
from shlex import quote
from typing import Any, Tuple

from pydantic import BaseModel, ConfigDict

from ram_reset.adapters.commands import Commands
from ram_reset.boot import wait_ready
from ram_reset.machine import Machine
from ram_reset.spec import OBJECT


class MachineConfig(BaseModel):
    """
    See Machine.start(); its shell is the guest agent's or the serial port's.

    :ivar ready: a regular expression that the serial port says when the guest
        has booted
    :ivar setup: lines that are sent to it then
    :ivar machines: as many samples run at once
    :ivar folder: for relative paths
    """

    model_config = ConfigDict(frozen=True, extra='forbid')

    args: Tuple[str, ...] = ()
    qemu: str = 'qemu-system-x86_64'
    disks: Tuple[str, ...] = ()
    serial: bool = True
    agent: bool = False
    object: str = OBJECT
    ready: str = ''
    setup: Tuple[str, ...] = ()
    boot_seconds: float = 300.0
    machines: int = 1
    folder: str = '/root'


def parse(config: Any) -> MachineConfig:
    """:param config: a string is the name of a file in JSON"""
    if isinstance(config, MachineConfig):
        return config
    if isinstance(config, str):
        return MachineConfig(**json.loads(Path(config).read_text()))
    raise TypeError("the sandbox 'ram-reset' needs a MachineConfig, or the "
                    'name of its file in JSON')


async def boot(config: MachineConfig) -> Machine:
    """A machine whose shell answers."""
    machine = await Machine.start(
        config.args, qemu=config.qemu, disks=config.disks,
        serial=config.serial, agent=config.agent, object=config.object)
    try:
        await wait_ready(machine, config.ready, config.setup,
                         config.boot_seconds)
        shell = Commands(machine)
        await shell.prepare()
        await shell.check(f'mkdir -p {quote(config.folder)}')
    except BaseException:
        await machine.close()
        raise
    return machine
