# SPDX-License-Identifier: GPL-2.0-or-later
"""ram-reset xml --hook: KubeVirt's hook onDefineDomain."""

import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest

from lib.kubevirt import Hook, vmi
from lib.pythons import pythons
from lib.xmltool import OBJECT, arguments, domain, piped, refusal, run


@pytest.fixture(scope='module', params=pythons(), ids=lambda path: path.name)
def hook(request, tmp_path_factory) -> Hook:
    return Hook(request.param, tmp_path_factory.mktemp('hook'))


def test_hook_changes_what_the_command_changes(hook):
    done = hook(vmi(), domain('kubevirt'))
    assert done.returncode == 0, done.stderr
    assert done.stdout == piped(domain('kubevirt'))
    assert b"warning: disk 'vdb' (raw): no savevm" in done.stderr


def test_hook_takes_its_options_from_annotations(hook):
    done = hook(vmi(fix='keep-disks,locked'), domain('kubevirt'))
    assert arguments(done.stdout)[-1] == \
        f'{OBJECT},keep-disks=ua-cloudinitdisk'
    text = 'ram-reset-memset,id=rr0,threads=2'
    done = hook(vmi(object=text, emulator='/opt-qemu'), domain('kubevirt'))
    assert arguments(done.stdout) == ['-object', text]
    assert ET.fromstring(done.stdout).findtext('devices/emulator') == \
        '/opt-qemu'


@pytest.mark.parametrize('json_text, name, reason', (
    ('{', 'kubevirt', 'in JSON'),
    ('[]', 'kubevirt', 'in JSON'),
    (vmi(object='ram-reset-auto'), 'kubevirt', "no 'id='"),
    (vmi(Object='ram-reset-auto,id=rr0'), 'kubevirt', 'is unknown'),
    (vmi(), 'refused/raw-disk', 'qcow2'),
    (vmi(), 'refused/truncated', 'well-formed')))
def test_hook_refuses(hook, json_text, name, reason):
    assert reason in refusal(hook(json_text, domain(name)))


def test_hook_without_annotations(hook):
    done = hook('{"metadata": {}}', domain('kubevirt'))
    assert arguments(done.stdout) == ['-object', OBJECT]


def test_hook_tells_the_log_of_its_container(hook):
    """The shim is process 1 there, and drops a hook's stderr."""
    shim = ('import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:], '
            'stderr=subprocess.DEVNULL).returncode)')
    done = hook(vmi(), domain('refused/raw-disk'), 'unshare', '-pf',
                '--mount-proc', sys.executable, '-c', shim)
    if b'unshare failed' in done.stderr:
        pytest.skip('no PID namespace can be made here: run as root')
    assert 'no writable disk of type qcow2' in refusal(done)


def test_hook_needs_nothing_but_the_standard_library(hook, tmp_path):
    """Its Python has no library at all, not even that of the package."""
    done = subprocess.run(
        ['python3', '-c', 'import ram_reset'], capture_output=True,
        check=False, cwd=tmp_path, env={'PATH': hook.search})
    assert b"No module named 'ram_reset'" in done.stderr
    assert hook(vmi(), domain('kubevirt')).returncode == 0


def test_hook_that_cannot_be_written(tmp_path):
    assert 'No such file' in refusal(run('--hook', tmp_path / 'no/hook'))
