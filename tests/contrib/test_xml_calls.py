# SPDX-License-Identifier: GPL-2.0-or-later
"""ram-reset xml called with files and with virsh."""

import os
import stat

import pytest

from lib.xmltool import domain, piped, refusal, run


def test_file_keeps_its_mode_and_owner(tmp_path):
    path, link = tmp_path / 'd.xml', tmp_path / 'link.xml'
    path.write_bytes(domain('odd'))
    path.chmod(0o640)
    if os.getuid() == 0:
        os.chown(path, 1234, 2345)
    link.symlink_to(path)
    before = path.stat()
    done = run(link)
    assert done.returncode == 0 and done.stdout == b'', done.stderr
    assert path.read_bytes() == piped(domain('odd'))
    after = path.stat()
    assert (before.st_mode, before.st_uid, before.st_gid) == \
        (after.st_mode, after.st_uid, after.st_gid)
    assert stat.S_IMODE(after.st_mode) == 0o640
    assert link.is_symlink()
    assert sorted(p.name for p in tmp_path.iterdir()) == ['d.xml', 'link.xml']
    assert b'nothing to change' in run(path).stderr
    assert path.stat().st_mtime_ns == after.st_mtime_ns


def test_dry_run(tmp_path):
    path = tmp_path / 'd.xml'
    path.write_bytes(domain('one-line'))
    done = run('--dry-run', path)
    assert done.returncode == 0
    added = [line for line in done.stdout.splitlines()
             if line.startswith(b'+<')]
    assert added == [b'+' + piped(domain('one-line'))]
    assert path.read_bytes() == domain('one-line')
    path.write_bytes(piped(domain('one-line')))
    assert run('--dry-run', path).stdout == b''


def test_missing_file_and_usage(tmp_path):
    assert 'No such file' in refusal(run(tmp_path / 'none.xml'))
    for args in ((), ('a.xml', '--domain', 'b'), ('--frobnicate', '-'),
                 ('a.xml', '--hook', 'b')):
        done = run(*args)
        assert done.returncode == 2 and b'usage:' in done.stderr


@pytest.fixture
def virsh(tmp_path) -> dict[str, str]:
    """A virsh that knows one domain; what it is told lies in tmp_path."""
    script = tmp_path / 'bin' / 'virsh'
    script.parent.mkdir()
    (tmp_path / 'sandbox.xml').write_bytes(domain('virt-install'))
    script.write_text(f'''#!/bin/sh
cd {tmp_path}
echo "$@" >>calls
case "$*" in
*"dumpxml --inactive --security-info sandbox") cat sandbox.xml ;;
*"define "*/dev/stdin) cat /dev/stdin >defined ;;
*) echo "error: failed to get domain" >&2; exit 1 ;;
esac
''')
    script.chmod(0o755)
    return {'PATH': f'{script.parent}:{os.environ["PATH"]}'}


def test_domain(tmp_path, virsh):
    done = run('--domain', 'sandbox', '--connect', 'qemu:///system', **virsh)
    assert done.returncode == 0 and b'started next' in done.stderr
    assert (tmp_path / 'defined').read_bytes() == piped(domain('virt-install'))
    assert (tmp_path / 'calls').read_text().splitlines() == [
        '-c qemu:///system -q dumpxml --inactive --security-info sandbox',
        '-c qemu:///system -q define /dev/stdin']


def test_domain_is_validated_where_libvirt_may_not_know_it(tmp_path, virsh):
    (tmp_path / 'sandbox.xml').write_bytes(domain('external-users'))
    assert run('--domain', 'sandbox', '--fix', 'nvram', **virsh
               ).returncode == 0
    assert (tmp_path / 'calls').read_text().splitlines()[1] == \
        '-q define --validate /dev/stdin'


def test_domain_that_is_not_defined_anew(tmp_path, virsh):
    assert run('--dry-run', '--domain', 'sandbox', **virsh).stdout
    (tmp_path / 'sandbox.xml').write_bytes(piped(domain('virt-install')))
    assert b'nothing' in run('--domain', 'sandbox', **virsh).stderr
    assert 'failed to get domain' in \
        refusal(run('--domain', 'other', **virsh))
    assert not (tmp_path / 'defined').exists()


def test_virsh_is_missing():
    assert 'virsh is missing' in refusal(run('--domain', 'x', PATH='/nowhere'))
