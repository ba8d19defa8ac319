# SPDX-License-Identifier: GPL-2.0-or-later
"""KubeVirt's hook, deployed and called as KubeVirt does both."""

import base64
import json
import os
import subprocess
from pathlib import Path

from lib.machine import run_quietly
from lib.xmltool import run

PREFIX = 'ram-reset.vm.kubevirt.io/'
NAME = 'onDefineDomain'
# All that a ConfigMap may have
MOST = 1 << 20


class Hook:
    """
    The hook, for a Python that has no libraries.

    :ivar path: of the hook's file, which is the content of the ConfigMap
    """

    def __init__(self, python: Path, folder: Path):
        self.path = folder / NAME
        done = run('--hook', self.path)
        assert (done.returncode, done.stdout, done.stderr) == (0, b'', b'')
        assert os.access(self.path, os.X_OK)
        # as kubectl puts what is no text into binaryData, in JSON
        self._programs = folder / 'bin'
        self._programs.mkdir()
        binary = json.dumps({NAME: base64.b64encode(self.path.read_bytes()
                                                    ).decode()})
        assert len(binary) < MOST / 4
        mounted = self._programs / NAME
        mounted.write_bytes(base64.b64decode(json.loads(binary)[NAME]))
        mounted.chmod(0o755)
        run_quietly(python, '-m', 'venv', '--without-pip', folder / 'venv')
        self.search = f'{self._programs}:{folder / "venv/bin"}'

    def __call__(self, vmi: str, domain: bytes, *before: object
                 ) -> subprocess.CompletedProcess:
        """
        As the shim of the sidecar does, which finds the hook by its name.

        :param before: a command that is to call it
        """
        return subprocess.run(
            [*map(str, before), NAME, '--vmi', vmi, '--domain', domain],
            capture_output=True, cwd='/', check=False,
            env={'PATH': f'{self.search}:{os.environ["PATH"]}'})


def vmi(**annotations: str) -> str:
    return json.dumps({
        'apiVersion': 'kubevirt.io/v1', 'kind': 'VirtualMachineInstance',
        'metadata': {'name': 'sandbox-7', 'annotations': {
            'hooks.kubevirt.io/hookSidecars': '[]',
            **{PREFIX + key: value for key, value in annotations.items()}}}})
