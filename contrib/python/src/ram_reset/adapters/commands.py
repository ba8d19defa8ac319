# SPDX-License-Identifier: GPL-2.0-or-later
"""Commands of a guest, by its shell; several may run at once."""

import time
from dataclasses import dataclass
from shlex import quote
from typing import Optional

from ram_reset.adapters.shell import FOLDER, Shell, TooMuchError, decode

FIRST = 24576           # bytes of a command's output that come with its status

# Its arguments are a folder and a user.  What it starts is in its group.
RUNNER = '''echo $$ >$1/pid
if [ "$2" ]; then su -s /bin/sh "$2" -c "/bin/sh $1/cmd"; else /bin/sh $1/cmd
fi <$1/in >$1/out 2>$1/err
echo $? >$1/s; mv $1/s $1/status; echo 1<>$1/done
'''


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    status: int
    out: bytes
    err: bytes


class Commands(Shell):
    """Of one machine that runs."""

    async def prepare(self) -> None:
        """To be called once, before a snapshot."""
        await self._run(f'mkdir -p {FOLDER}')
        await self.put(f'{FOLDER}/run', RUNNER.encode())

    async def exec(self, script: str, *, input: bytes = b'', user: str = '',
                   timeout: Optional[float] = None, limit: int) -> Done:
        """
        Run a script.  It is killed if it takes too long, or if the caller is
        cancelled.

        :param user: that runs it; by default the one of the shell
        :param limit: the most bytes of each output
        """
        folder = await self.new()
        await self.put(f'{folder}/cmd',
                       f'PATH=$own; unset own; {script}'.encode())
        await self.put(f'{folder}/in', input)
        await self.check(f'mkfifo {folder}/done; setsid /bin/sh {FOLDER}/run '
                         f'{folder} {quote(user)} >/dev/null 2>&1 & true')
        try:
            found = await self._wait(folder, timeout)
        except BaseException:
            self.begin(f'cd {folder}; [ -s pid ] || sleep 1; '
                       'kill -9 -$(cat pid)')
            raise
        status, *sizes = map(int, found[:3])
        if max(sizes) > limit:
            raise TooMuchError(f'an output has more than {limit} bytes')
        outputs = []
        for name, size, text in zip(('out', 'err'), sizes, found[3:]):
            outputs.append(
                decode(text, size) if size <= FIRST else
                await self.get(f'{folder}/{name}', limit))
        self.begin(f'rm -rf {folder}')
        return Done(status, *outputs)

    async def _wait(self, folder: str, timeout: Optional[float]
                    ) -> 'list[str]':
        """Its status, the sizes of its outputs, and their first bytes."""
        end = time.monotonic() + timeout if timeout else float('inf')
        # the pipe is open before the status is looked for: no end is missed
        line = (f'cd {folder}; exec 9<>done; [ -e status ] || '
                '{ timeout 1 head -c 1 <&9; } >/dev/null 2>&1; '
                '[ ! -e status ] || { cat status; wc -c <out; wc -c <err; '
                f'for i in out err; do head -c {FIRST} $i | base64 | '
                'tr -d "\\n"; echo; done; }')
        while True:
            found = (await self.check(line)).splitlines()
            if found:
                return found
            if time.monotonic() > end:
                raise TimeoutError(f'the command has not ended in {timeout:g} '
                                   's')
