# SPDX-License-Identifier: GPL-2.0-or-later
"""
Inspect's sandboxes: a task boots one machine, a sample has it as it was then.

>>> Task(dataset, sandbox=SandboxEnvironmentSpec('ram-reset', MachineConfig(
...     disks=['debian.qcow2'], agent=True, machines=4)))
"""

import logging
import os
import posixpath
from shlex import quote
from typing import Any, Dict, List, Optional, Union

from inspect_ai.util import (ExecResult, OutputLimitExceededError,
                             SandboxEnvironment, SandboxEnvironmentLimits,
                             SandboxUnavailableError, sandboxenv)
from pydantic import BaseModel

from ram_reset.adapters.commands import Commands, Done
from ram_reset.adapters.machine_config import MachineConfig, boot, parse
from ram_reset.adapters.shell import TooMuchError
from ram_reset.errors import LostError
from ram_reset.pool import Pool, Ready

logger = logging.getLogger(__name__)

# They end with an errno of Linux
READ = ('[ ! -d {f} ] || exit 21; [ -e {f} ] || exit 2; [ -r {f} ] || exit 13;'
        ' cat {f} || exit 5')
WRITE = ('[ ! -d {f} ] || exit 21; mkdir -p {d} || exit 13; '
         '[ ! -e {f} ] || [ -w {f} ] || exit 13; cat >{f} || exit 5')


@sandboxenv(name='ram-reset')
class RamResetSandbox(SandboxEnvironment):
    """A machine of the task's pool, for one sample."""

    pools: Dict[Any, Pool] = {}         # by configuration

    def __init__(self, pool: Pool, ready: Ready, folder: str):
        super().__init__()
        self.machine = ready[0]
        self._pool, self._ready, self._folder = pool, ready, folder
        self._commands = Commands(self.machine)

    @classmethod
    async def task_init(cls, task_name: str, config: Any) -> None:
        if config not in cls.pools:
            settings = parse(config)
            cls.pools[config] = await Pool.of(await boot(settings),
                                              settings.machines)

    @classmethod
    async def sample_init(cls, task_name: str, config: Any,
                          metadata: Dict[str, str]
                          ) -> Dict[str, SandboxEnvironment]:
        pool = cls.pools[config]
        return {'default': cls(pool, await pool.take(), parse(config).folder)}

    @classmethod
    async def sample_cleanup(cls, task_name: str, config: Any,
                             environments: Dict[str, Any],
                             interrupted: bool) -> None:
        for environment in environments.values():
            await environment.end()

    @classmethod
    async def task_cleanup(cls, task_name: str, config: Any, cleanup: bool
                           ) -> None:
        pool = cls.pools.pop(config, None)
        if pool:
            await pool.close()

    @classmethod
    def config_files(cls) -> List[str]:
        return ['ram-reset.json']

    @classmethod
    def config_deserialize(cls, config: Dict[str, Any]) -> BaseModel:
        return MachineConfig(**config)

    async def end(self) -> None:
        """Give the machine back, which restores it."""
        await self._commands.end()
        try:
            await self._pool.give(self._ready)
        except LostError as e:
            logger.warning('a machine of the pool is lost: %s', e)

    async def exec(self, cmd: List[str], input: Union[str, bytes, None] = None,
                   cwd: Optional[str] = None,
                   env: Optional[Dict[str, str]] = None,
                   user: Optional[str] = None, timeout: Optional[int] = None,
                   timeout_retry: bool = True, concurrency: bool = True
                   ) -> Any:
        data = input.encode() if isinstance(input, str) else input or b''
        script = f'cd {quote(self._path(cwd or "."))} || exit; ' + ''.join(
            f'export {name}={quote(value)}; '
            for name, value in (env or {}).items())
        limits = SandboxEnvironmentLimits
        done = await self._exec(
            script + 'exec ' + ' '.join(map(quote, cmd)), data, user or '',
            timeout, limits.MAX_EXEC_OUTPUT_SIZE,
            limits.MAX_EXEC_OUTPUT_SIZE_STR)
        out, err = done.out.decode(errors='replace'), \
            done.err.decode(errors='replace')
        if done.status == 126 and 'denied' in err:
            raise PermissionError(err.strip())
        return ExecResult(not done.status, done.status, out, err)

    async def write_file(self, file: str, contents: Union[str, bytes]) -> None:
        path = self._path(file)
        data = contents.encode() if isinstance(contents, str) else contents
        await self._file(WRITE, path, data)

    async def read_file(self, file: str, text: bool = True) -> Any:
        data = await self._file(READ, self._path(file))
        return data.decode() if text else data

    def _path(self, file: str) -> str:
        return posixpath.join(self._folder, file)

    async def _file(self, script: str, path: str, data: bytes = b'') -> bytes:
        limits = SandboxEnvironmentLimits
        done = await self._exec(
            script.format(f=quote(path), d=quote(posixpath.dirname(path))),
            data, '', None, limits.MAX_READ_FILE_SIZE,
            limits.MAX_READ_FILE_SIZE_STR)
        if done.status:
            raise OSError(done.status, os.strerror(done.status), path)
        return done.out

    async def _exec(self, script: str, data: bytes, user: str,
                    timeout: Optional[int], limit: int, shown: str) -> Done:
        try:
            return await self._commands.exec(script, input=data, user=user,
                                             timeout=timeout, limit=limit)
        except TooMuchError as e:
            raise OutputLimitExceededError(shown, None) from e
        except LostError as e:
            raise SandboxUnavailableError(str(e)) from e
