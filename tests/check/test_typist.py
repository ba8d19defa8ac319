# SPDX-License-Identifier: GPL-2.0-or-later
"""lib/typist.py: what fails where a document says it is typed is an error."""

import pytest

from lib.documents import GUEST, MONITOR, SHELL, Command
from lib.products import PRODUCTS
from lib.typist import Typist, Wrong

SH = (f"sh -c \"cd /; exec env PS1='guest# ' PATH=/bin {PRODUCTS}/busybox sh\"")


@pytest.fixture
def typist():
    """In the shell of a guest, which needs no guest here."""
    with Typist(['env']) as typist:
        typist.type(Command(SHELL, SH, 1))
        yield typist


def test_good_commands(typist):
    assert 'word' in typist.type(Command(GUEST, 'echo word', 2))
    typist.type(Command(GUEST, 'sleep 0.1 &', 4))
    typist.type(Command(GUEST, 'exit', 5))
    assert typist.type(Command(SHELL, 'echo back', 6)) == 'back\n'


def test_a_notice_after_the_prompt(typist):
    """QEMU's display server writes one when the monitor has begun."""
    typist.type(Command(GUEST, 'exit', 2))
    prompt = ("printf 'monitor\\n(qemu) "
              "VNC server running on 127.0.0.1:5901\\n'; read -r")
    assert typist.type(Command(SHELL, prompt, 3)) == 'monitor'
    typist.type(Command(MONITOR, '', 4))
    assert typist.type(Command(SHELL, 'echo back', 5)) == 'back\n'


@pytest.mark.parametrize('text,status', [
    ('false', 1), ('grep -q word /dev/null', 1), ('(exit 77)', 77)])
def test_a_status_in_a_guest(typist, text, status):
    with pytest.raises(Wrong, match=f'ends with status {status}: '):
        typist.type(Command(GUEST, text, 2))


def test_a_status_in_a_shell(typist):
    typist.type(Command(GUEST, 'exit', 2))
    with pytest.raises(Wrong, match='ends with status 1: '):
        typist.type(Command(SHELL, 'false', 3))
