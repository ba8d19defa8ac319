# SPDX-License-Identifier: GPL-2.0-or-later
"""packaging/qemu-ram-reset, which adds the objects of a file."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from lib import products

LAUNCHER = products.REPO / 'packaging/qemu-ram-reset'
SHIPPED = products.REPO / 'packaging/objects'
QUESTIONS = ''.join(json.dumps(line) + '\n' for line in (
    {'execute': 'qmp_capabilities'},
    *({'execute': 'qom-get', 'arguments': {'path': '/objects/ram-reset0',
                                           'property': name}}
      for name in ('rewind', 'rewind-limit')),
    {'execute': 'quit'}))
ECHO = '#!/bin/sh\nprintf "%s\\n" "$@"\n'


@pytest.fixture
def start(tmp_path):
    """Run the launcher with a QEMU that prints its arguments, or @qemu."""
    echo = tmp_path / 'echo'
    echo.write_text(ECHO)
    echo.chmod(0o755)

    def run(*args, objects=None, status=0, qemu=echo, env=(),
            typed=''):
        file = tmp_path / 'objects'
        settings = {'PATH': os.environ['PATH'], 'HOME': str(tmp_path),
                    'QEMU_RAM_RESET_BINARY': str(qemu)}
        if objects is not None:
            file.write_text(objects)
            settings['QEMU_RAM_RESET_OBJECTS'] = str(file)
        done = subprocess.run(
            [LAUNCHER, *args], capture_output=True, text=True, timeout=60,
            check=False, input=typed, env={**settings, **dict(env)})
        assert done.returncode == status, done.stderr
        return done.stderr if status else done.stdout.splitlines()

    return run


def refused(start, text: str) -> str:
    """The sentence, without the file's name."""
    said = start('-m', '1G', objects=text, status=1)
    assert len(said.splitlines()) == 1
    match = re.fullmatch(r'qemu-ram-reset: /\S+/objects:(\d+: .*)\n', said)
    assert match, said
    return match[1]


@pytest.mark.parametrize('text, added', (
    ('', []),
    ('# only a comment\n\n  \t\n', []),
    ('ram-reset-auto,id=a', ['ram-reset-auto,id=a']),
    ('ram-reset-auto,id=a\r\n\r\n', ['ram-reset-auto,id=a']),
    (' \tram-reset-auto,id=a  \n#x\nram-reset-memset,id=b,memdev=m\n',
     ['ram-reset-auto,id=a', 'ram-reset-memset,id=b,memdev=m']),
    ('ram-reset-auto,id=a,template-dir=/a b/,,c,rewind=on\n',
     ['ram-reset-auto,id=a,template-dir=/a b/,,c,rewind=on']),
    (r'ram-reset-auto,id=a,template-dir=/$HOME/`x`\n' '\n',
     [r'ram-reset-auto,id=a,template-dir=/$HOME/`x`\n']),
    ('memory-backend-ram,id=m,size=1G\n', ['memory-backend-ram,id=m,size=1G'])))
def test_lines_are_added(start, text, added):
    args = ['-append', 'a  b', '', '*', '-m', '1G']
    assert start(*args, objects=text) == \
        args + [word for line in added for word in ('-object', line)]


@pytest.mark.parametrize('args', (
    ['-version'], ['--version'], ['-help'], ['-h'], ['--help'],
    ['-device', 'help'], ['-machine', 'help'], ['-M', '?'], ['-cpu', 'help'],
    ['-device', 'e1000,help'], ['--object', 'help'],
    ['-machine', 'none', '-qmp', 'stdio'], ['-M', 'none'],
    ['--machine', 'type=none'],
    ['-S', '-no-user-config', '-nodefaults', '-nographic', '-machine',
     'none,accel=kvm:tcg', '-qmp', 'unix:/x,server=on,wait=off', '-pidfile',
     '/x.pid', '-daemonize'],
    ['-object', 'ram-reset-memset,id=mine', '-m', '1G'],
    ['-object', 'qom-type=ram-reset-memset,id=mine'],
    ['-object', 'id=mine,qom-type=ram-reset-memset'],
    ['--object', 'id=mine,verify=on,qom-type=ram-reset-auto,rewind=on'],
    ['-object', '{"qom-type": "ram-reset-memset", "id": "mine"}']))
def test_passed_on_as_it_is_and_whatever_the_file_says(start, args):
    assert start(*args, objects='nonsense!') == args


@pytest.mark.parametrize('args', (
    ['-kernel', 'help'], ['-append', 'none'], ['-machine', 'q35'],
    ['-object', 'memory-backend-ram,id=m,size=1G'], ['-name', 'none']))
def test_added_to_a_machine(start, args):
    assert start(*args, objects='ram-reset-auto,id=a') == \
        args + ['-object', 'ram-reset-auto,id=a']


OWN = '[object "mine"]\n  qom-type = "ram-reset-memset"\n'


@pytest.mark.parametrize('option', ('-readconfig', '--readconfig'))
@pytest.mark.parametrize('text, has', (
    (OWN, True), (OWN.rstrip(), True),
    ('# mine\n\n[machine]\n  type = "q35"\n' + OWN, True),
    ('[object]\nid = "mine"\n\tqom-type = "ram-reset-auto"\n', True),
    ('', False), ('# ' + OWN.replace('\n', '\n# '), False),
    ('[object "m"]\n  qom-type = "memory-backend-ram"\n  size = "1G"\n',
     False),
    ('[object "m"]\n  id = "ram-reset-auto"\n', False),
    ('[object "m"]\n[device "d"]\n  qom-type = "ram-reset-auto"\n', False)))
def test_objects_of_a_file_of_readconfig(start, tmp_path, option, text, has):
    config = tmp_path / 'my config'
    config.write_text(text)
    args = [option, str(config), '-S']
    added = [] if has else ['-object', 'ram-reset-auto,id=a']
    assert start(*args, objects='ram-reset-auto,id=a') == args + added


def test_readconfig_of_what_is_no_file_is_left_to_qemu(start, tmp_path):
    pipe = tmp_path / 'pipe'
    os.mkfifo(pipe)
    for name in (tmp_path / 'none', tmp_path, pipe):
        args = ['-readconfig', str(name)]
        assert start(*args, objects='ram-reset-auto,id=a') == \
            args + ['-object', 'ram-reset-auto,id=a']


def test_qemu_reads_the_same_in_a_file_of_readconfig(start, tmp_path):
    config = tmp_path / 'config'
    config.write_text(OWN.replace('mine', 'ram-reset0') +
                      '  rewind = "on"\n  memdev = "pc.ram"\n')
    said = start(
        '-nodefaults', '-display', 'none', '-accel', 'tcg', '-L',
        products.FIRMWARE, '-qmp', 'stdio', '-S', '-readconfig', config,
        qemu=products.QEMU, objects='nonsense!', typed=QUESTIONS)
    assert json.loads(said[2])['return'] is True


@pytest.mark.parametrize('text, sentence', (
    ('\n-object ram-reset-auto,id=a\n',
     "2: '-object' is added to each line; leave only what follows it"),
    ('ram-reset-auto\n',
     '1: the object has no id; add one, such as ram-reset-auto,id=rr1'),
    ('ram-reset-fast,id=a',
     "1: there is no object 'ram-reset-fast'; use ram-reset-auto, -madvise, "
     '-memset, -remap or -hugefile'),
    ('ram-reset-auto,id=a\n\n#\nram-reset-memset,id=a,memdev=m\n',
     "4: an object before it has the id 'a' as well; give it another"),
    ('ram-reset-auto id=a\n',
     "1: 'ram-reset-auto id=a' is no type of object; write a line such as "
     'ram-reset-auto,id=rr0'),
    ('ram-reset-auto,id=a,rewind\n',
     "1: 'rewind' is no NAME=VALUE; write a line such as "
     'ram-reset-auto,id=rr0'),
    ('ram-reset-memset,id=a,objective=total\n',
     "1: ram-reset-memset has no property 'objective'; it has: id memdev "
     'verify rewind rewind-limit threads template-dir template-limit '
     'new-vmgenid unchanged-devices save-kind keep-disks')))
def test_a_bad_line_is_named(start, text, sentence):
    assert refused(start, text) == sentence


def test_whose_file_it_is(start, tmp_path):
    own = tmp_path / '.config/qemu-ram-reset/objects'
    own.parent.mkdir(parents=True)
    own.write_text('ram-reset-auto,id=mine\n')
    assert start('-S')[1:] == ['-object', 'ram-reset-auto,id=mine']
    assert start('-S', env={'QEMU_RAM_RESET_OBJECTS': ''}) == ['-S']
    other = {'XDG_CONFIG_HOME': str(tmp_path / 'other')}
    assert 'mine' not in str(start('-S', env=other))
    assert start('-S', objects='ram-reset-auto,id=b')[2] == \
        'ram-reset-auto,id=b'


def test_files_that_cannot_be_used(start, tmp_path):
    def said(path):
        return start('-S', status=1, env={'QEMU_RAM_RESET_OBJECTS': str(path)})

    assert said(tmp_path / 'none') == (
        f'qemu-ram-reset: {tmp_path}/none, which QEMU_RAM_RESET_OBJECTS '
        'names, does not exist; name a file that does, or set it to nothing '
        'for no objects\n')
    assert 'cannot be read as a file' in said(tmp_path)
    assert start('-S', qemu=tmp_path / 'gone', status=1) == (
        f'qemu-ram-reset: {tmp_path}/gone cannot be run; install the package '
        'qemu-ram-reset again, or set QEMU_RAM_RESET_BINARY to another QEMU\n')


def test_properties_are_those_of_qemu(start):
    for name in ('auto', 'madvise', 'memset', 'remap', 'hugefile'):
        said = subprocess.run(
            [products.QEMU, '-object', f'ram-reset-{name},help'], text=True,
            capture_output=True, check=True).stdout
        has = {'id', *re.findall(r'^  ([\w-]+)=', said, re.M)}
        known = refused(start, f'ram-reset-{name},id=a,none=such')
        assert set(known.split('it has: ')[1].split()) == has


def test_qemu_takes_what_is_shipped_and_rewinds(start):
    said = start(
        '-nodefaults', '-display', 'none', '-accel', 'tcg', '-L',
        products.FIRMWARE, '-qmp', 'stdio', '-S', qemu=products.QEMU,
        objects=SHIPPED.read_text(), typed=QUESTIONS)
    assert [json.loads(line)['return'] for line in said[2:4]] == \
        [True, 1 << 30]


def test_no_shell_but_debians_is_needed():
    for script in (LAUNCHER, *(products.REPO / 'packaging/debian').glob('*')):
        if script.is_file() and script.read_text().startswith('#!/bin/sh'):
            subprocess.run(['dash', '-n', script], check=True)
