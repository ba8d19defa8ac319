# SPDX-License-Identifier: GPL-2.0-or-later
"""
KubeVirt's hook onDefineDomain: the program, and the file that it is deployed
as.  The hook gets a VMI and the XML of its domain, and prints the new XML.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import zipapp
from pathlib import Path
from typing import Any, Optional, Sequence, Union

from ram_reset.domain.change import Wish, change
from ram_reset.domain.fixes import split_names
from ram_reset.errors import DomainError

ANNOTATION = 'ram-reset.vm.kubevirt.io/'
KEYS = 'object', 'emulator', 'fix'
PACKAGE = Path(__file__).resolve().parents[1]


def wish_of(vmi: str) -> Wish:
    """The wish in a VMI's annotations."""
    try:
        metadata: Any = json.loads(vmi).get('metadata') or {}
        annotations = metadata.get('annotations') or {}
    except (ValueError, AttributeError) as e:
        raise DomainError('--vmi is no VirtualMachineInstance in JSON '
                          f'({e})') from e
    for key in annotations:
        if key.startswith(ANNOTATION) and key[len(ANNOTATION):] not in KEYS:
            raise DomainError(f"the annotation '{key}' is unknown; there are "
                              f'object, emulator and fix behind {ANNOTATION}')
    wished = [annotations.get(ANNOTATION + key) for key in KEYS]
    return Wish(wished[0], wished[1], split_names(wished[2] or ''))


def say(text: str) -> None:
    line = f'ram-reset xml: the domain of this VMI: {text}\n'
    sys.stderr.write(line)
    # KubeVirt's shim drops a hook's stderr; its own goes to the pod's log
    if os.getppid() == 1:
        try:
            log = os.open('/proc/1/fd/2', os.O_WRONLY | os.O_APPEND)
            os.write(log, line.encode())
            os.close(log)
        except OSError:
            pass


def hook(arguments: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description="KubeVirt's hook onDefineDomain.")
    parser.add_argument('--vmi', required=True, metavar='JSON')
    parser.add_argument('--domain', required=True, metavar='XML')
    options = parser.parse_args(arguments)
    try:
        new, notes = change(os.fsencode(options.domain), wish_of(options.vmi))
    except DomainError as e:
        say(str(e))
        return 1
    for note in notes:
        say(f'warning: {note}')
    sys.stdout.buffer.write(new)
    return 0


def main() -> None:
    sys.exit(hook())


def write_hook(path: Union[str, Path]) -> None:
    """Make one file of this folder, which needs nothing but Python."""
    with tempfile.TemporaryDirectory(prefix='ram-reset-xml.') as work:
        package = Path(work) / 'ram_reset'
        shutil.copytree(PACKAGE / 'domain', package / 'domain',
                        ignore=shutil.ignore_patterns('__pycache__'))
        shutil.copy(PACKAGE / 'errors.py', package)
        # that of the package imports qemu.qmp
        (package / '__init__.py').write_text('')
        zipapp.create_archive(work, path, '/usr/bin/env python3',
                              'ram_reset.domain.kubevirt:main',
                              compressed=True)
