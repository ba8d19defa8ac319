# SPDX-License-Identifier: GPL-2.0-or-later
"""
A load in the middle of a message to or from an agent in the guest: what either
end sees, and how both get in step again.
"""

# Takes: 15 s

import os
import time
from pathlib import Path

import pytest

from lib.effort import LONG, rounds
from lib.io.agent import DROP, AgentGuest, Garbage, hashed
from lib.io.guest import BOOTED, copy_disks

REWIND = {'strategy': 'auto', 'options': ',rewind=on'}
LOADS = 1000 if LONG else rounds(30, 15)
BODY = b'0123456789' * 3000
LARGE = 600_000         # more than sockets and queues hold


@pytest.fixture(scope='module')
def booted(tmp_path_factory, linux_accel) -> Path:
    workdir = tmp_path_factory.mktemp('booted')
    with AgentGuest(workdir, accel=linux_accel) as guest:
        guest.save(BOOTED)
    return workdir


@pytest.fixture
def guest(tmp_path, linux_accel, booted):
    copy_disks(booted, tmp_path)
    with AgentGuest(tmp_path, accel=linux_accel, loadvm=BOOTED,
                    **REWIND) as guest:
        yield guest


def test_request_in_two_parts(guest):
    """
    The agent has the first part again, and the second, which the host has
    sent, is lost: the next request becomes the end of the first.
    """
    peer = guest.connect()
    peer.ask(BODY)
    request, answer = peer.request(BODY)
    half = len(request) // 2
    peer.send(request[:half])
    guest.wait_pending(half)
    guest.save('s')
    peer.send(request[half:])
    assert peer.line() == answer

    guest.load('s')
    assert guest.pending() == half
    with pytest.raises(Garbage):
        peer.ask(b'next')
    # such an agent cannot notice it, and the host does not get an answer

    guest.load('s')
    next_request, _ = peer.request(b'next')
    peer.send(next_request)
    glued = (request[:half] + next_request).split(b' ', 3)[3].rstrip(b'\n')
    assert peer.line() == b'%b %d %08x \n' % (
        request.split()[1], len(glued), hashed(glued))

    guest.load('s')
    assert peer.sync() == 0
    assert guest.pending() == 0
    peer.ask(b'next')


def test_answer_in_two_parts(guest):
    """The host gets the second part twice."""
    peer = guest.connect()
    request, answer = peer.request(b'small', LARGE)
    peer.send(request)
    begin = peer.receive(1000)
    time.sleep(0.5)         # as much as has room is under way
    guest.save('s')
    assert begin + peer.receive(len(answer) - len(begin)) == answer

    guest.load('s')
    again = peer.rest()
    assert 0 < len(again) < len(answer) and answer.endswith(again)

    guest.load('s')
    with pytest.raises(Garbage):
        peer.ask(b'next')
    guest.load('s')
    assert peer.sync() > 0
    peer.ask(b'next')


def test_load_without_a_host(guest):
    """
    The guest had an answer under way at the save, and nobody is connected when
    it is loaded.  QEMU sends nothing to the next connection, since it waits
    for room in one that is gone; the one after it works (qemu-bugs.rst).
    """
    peer = guest.connect()
    request, answer = peer.request(b'small', LARGE)
    peer.send(request)
    peer.receive(1000)
    time.sleep(0.5)
    guest.save('s')
    peer.end.close()
    guest.load('s')
    guest.connect().end.close()
    peer = guest.connect()
    assert peer.sync() < len(answer)
    peer.ask(b'next')


def test_random_instants(guest, rng):
    """A load at any time, and the host need not know what was under way."""
    peer = guest.connect()
    dropped = cut = 0
    for i in range(LOADS):
        body = BODY[:rng.randrange(1, len(BODY))]
        request, answer = peer.request(body, rng.choice((0, 100, LARGE)))
        begun = rng.randrange(len(request))
        peer.send(request[:begun])
        if i % 5 == 0:
            guest.save('s')
        peer.send(request[begun:])
        received = rng.choice((0, rng.randrange(len(answer))))
        peer.receive(received)
        cut += received != len(answer)
        guest.load('s')
        dropped += peer.sync() > 0
        for _ in range(3):
            peer.ask(body[:100], rng.randrange(10000))
    print(f'{LOADS} loads, {cut} in the middle of an answer; after {dropped} '
          'of them the host received something else before the mark')
    assert dropped


def test_vsock(tmp_path, linux_accel):
    """A load ends connections, and the next ones work."""
    if not os.access('/dev/vhost-vsock', os.R_OK | os.W_OK):
        pytest.skip('/dev/vhost-vsock cannot be opened: this host has no '
                    'vhost_vsock module, or does not allow it')
    with AgentGuest(tmp_path, accel=linux_accel, cid=3 + os.getpid(),
                    **REWIND) as guest:
        peer = guest.connect()
        peer.ask(b'before')
        request, _ = peer.request(BODY)
        peer.send(request[:len(request) // 2])
        guest.wait_pending(len(request) // 2)
        guest.save('s')
        peer.send(request[len(request) // 2:])
        peer.line()
        guest.load('s')
        with pytest.raises(OSError):
            peer.ask(b'next')
        guest.wait_pending(0)
        peer = guest.connect()
        peer.ask(b'next')
        assert DROP not in peer.rest()
