# SPDX-License-Identifier: GPL-2.0-or-later
"""ram-reset loop as data, as a page with plots, and on a terminal."""

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
import xml.dom.minidom
from html.parser import HTMLParser
from pathlib import Path

import pytest

from lib.ramreset import (COMMAND, ENVIRONMENT, OBJECT, PING, READY, command,
                           loop, qemu)

WITHOUT = '''
import sys
sys.modules['matplotlib'] = None
from ram_reset.cli import main
sys.exit(main())
'''
# <b> must be text in the page
FAILS = ('--run', '[ $RAM_RESET_ITERATION != 2 ] || (exit 3) # <b>')
LOAD = {'seconds': 0.002, 'iteration-seconds': 0.01, 'rewound': True,
        'qemu-seconds': 0.001, 'dirty-pages': 7, 'copied-pages': 7,
        'reason': None}
RESULTS = {'format': 'ram-reset-loop', 'version': 1, 'connect': 'qmp.sock',
           'snapshot': 'mine', 'seconds': 0.5, 'interrupted': False,
           'failure': None, 'rewinds': 2, 'loads': [LOAD, LOAD],
           'reasons': [], 'errors': []}


def results(path: Path) -> dict:
    return json.loads(path.read_text())


@pytest.fixture
def without_rewinds(tmp_path, fast_accel) -> Path:
    """Results with a reason and an error."""
    file = tmp_path / 'out.json'
    loop(*READY, *FAILS, *PING, '--iterations', 4, '--json', file, '--',
         *qemu(tmp_path, fast_accel, obj=OBJECT + ',rewind-limit=4096'))
    return file


def test_data_of_each_load(tmp_path, fast_accel):
    file = tmp_path / 'out.json'
    args = qemu(tmp_path, fast_accel)
    done = loop(*READY, *PING, '--iterations', 6, '--snapshot', 'mine',
                '--json', file, '--', *args)
    data = results(file)
    assert data['command'] == args and data['snapshot'] == 'mine'
    assert data['rewinds'] == 6 and len(data['loads']) == 6
    assert f'6 loads in {data["seconds"]:.1f} s' in done.stdout
    for load in data['loads']:
        assert load['rewound'] and load['reason'] is None
        assert 0 < load['qemu-seconds'] < load['seconds'] < \
            load['iteration-seconds'] < data['seconds']
    assert all(load['dirty-pages'] > 0 for load in data['loads'][1:])
    assert data['errors'] == [] and data['reasons'] == []
    assert data['failure'] is None and not data['interrupted']


def test_data_of_reasons_and_errors(without_rewinds):
    data = results(without_rewinds)
    reason, = data['reasons']
    assert reason['id'] == 'rewind-limit' and reason['times'] == 4
    assert 'raise rewind-limit=' in reason['remedy']
    assert [load['reason'] for load in data['loads']] == [reason['reason']] * 4
    error, = data['errors']
    assert error['iteration'] == 2 and error['kind'] == 'failed command'
    assert 'ends with status 3' in error['text']


def test_no_object_is_a_reason_with_a_remedy(tmp_path, fast_accel):
    file = tmp_path / 'out.json'
    loop(*READY, *PING, '--iterations', 2, '--json', file, '--',
         *qemu(tmp_path, fast_accel, obj=''))
    reason, = results(file)['reasons']
    assert reason['times'] == 2 and '-object ram-reset' in reason['remedy']


def test_data_of_a_qemu_that_dies(tmp_path, fast_accel):
    file = tmp_path / 'out.json'
    done = loop(*READY, '--json', file, '--run', 'kill -9 $(cat '
                f'{tmp_path}/pid)', '--', *qemu(tmp_path, fast_accel),
                status=1)
    data = results(file)
    assert data['failure'].startswith('QEMU has ended with status -9')
    assert data['failure'] in done.stderr
    load, = data['loads']
    assert load['iteration-seconds'] is None


def test_file_that_cannot_be_written(tmp_path, fast_accel):
    file = tmp_path / 'none/out.json'
    done = loop(*READY, '--json', file, '--', *qemu(tmp_path, fast_accel),
                status=1)
    assert done.stderr.startswith(f'ram-reset loop: {file} cannot be written')
    assert not (tmp_path / 'pid').exists()


class Page(HTMLParser):
    """Its text, and the addresses of other files."""

    def __init__(self, text: str):
        super().__init__()
        self.text = ''
        self.others: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.others += [f'{tag} {name}={value}' for name, value in attrs
                        if name in ('src', 'href', 'xlink:href')
                        and not value.startswith(('#', 'data:'))]

    def handle_data(self, data):
        self.text += data


def test_page(without_rewinds, tmp_path):
    page = tmp_path / 'page.html'
    command('report', without_rewinds, '-o', page)
    text = page.read_text()
    parsed = Page(text)
    assert parsed.others == [] and '@import' not in text
    for words in ('Loads of snapshot ram-reset-loop', '0 of 4',
                  'raise rewind-limit=', 'failed command', '# <b>'):
        assert words in parsed.text, words
    svg = xml.dom.minidom.parseString(
        re.search('<svg.*</svg>', text, re.S)[0])
    marks = [use for use in svg.getElementsByTagName('use')
             if use.getAttribute('clip-path') or
             use.parentNode.getAttribute('clip-path')]
    assert len(marks) >= 4
    words = {t.firstChild.data for t in svg.getElementsByTagName('text')
             if t.firstChild}
    assert {'Each load', 'other loads'} <= words and 'rewinds' not in words


def test_page_beside_the_file(tmp_path):
    file = tmp_path / 'a.json'
    file.write_text(json.dumps(RESULTS | {'interrupted': True}))
    command('report', file)
    text = (tmp_path / 'a.html').read_text()
    assert 'QEMU at qmp.sock' in text and 'interrupted' in text


def test_without_matplotlib(tmp_path):
    file = tmp_path / 'a.json'
    file.write_text(json.dumps(RESULTS))
    done = subprocess.run([sys.executable, '-c', WITHOUT, 'report', file],
                          env=ENVIRONMENT, capture_output=True, text=True,
                          check=False)
    assert done.returncode == 1
    assert done.stderr.startswith('ram-reset report: matplotlib is missing')
    assert "pip install 'ram-reset[report]'" in done.stderr
    assert done.stderr.count('\n') == 1
    assert not (tmp_path / 'a.html').exists()


@pytest.mark.parametrize('text, reason', (
    (None, 'cannot be read (No such file'),
    ('', 'has no results'), ('[]', 'has no results'),
    ('{"loads": []}', 'has no results'),
    (json.dumps(RESULTS | {'version': 9}), 'has version 9'),
    (json.dumps(RESULTS | {'loads': [], 'failure': 'QEMU has ended'}),
     'has no load: QEMU has ended')))
def test_file_that_is_none(tmp_path, text, reason):
    file = tmp_path / 'a.json'
    if text is not None:
        file.write_text(text)
    done = command('report', file, status=1)
    assert done.stderr.startswith(f'ram-reset report: {file} {reason}')


def test_usage_of_the_command():
    assert 'COMMAND' in command(status=2).stderr
    assert "'lop'" in command('lop', status=2).stderr
    text = command('--help').stdout
    assert 'take a guest back to a snapshot in a loop' in text


def terminal(*args: object) -> str:
    """All that it shows on a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen([*COMMAND, *(str(a) for a in args)], stderr=theirs,
                          stdout=subprocess.DEVNULL, env=ENVIRONMENT
                          ) as process:
        os.close(theirs)
        shown = b''
        with contextlib.suppress(OSError):      # the other end is closed
            while data := os.read(ours, 65536):
                shown += data
    os.close(ours)
    assert process.returncode == 0
    return shown.decode()


def test_progress_on_a_terminal(tmp_path, fast_accel):
    shown = terminal(
        'loop', *READY, *FAILS, '--iterations', 5, '--', *qemu(
            tmp_path, fast_accel, obj=OBJECT + ',rewind-limit=4096'))
    assert 'waits until the guest is ready' in shown
    assert re.search(r'5 loads, [\d.]+ a second, '
                     'rewinds: 0, errors: 1', shown)
    assert len(re.findall('no rewind: .*; raise rewind-limit=', shown)) == 1
    # the line is removed before a message, and at the end
    assert re.search(r'\r\x1b\[Kram-reset loop: iteration 2: failed', shown)
    assert shown.endswith('\r\x1b[K')


def test_no_progress_in_a_file(tmp_path, fast_accel):
    done = loop(*READY, '--iterations', 5, '--', *qemu(tmp_path, fast_accel))
    assert done.stderr == ''
