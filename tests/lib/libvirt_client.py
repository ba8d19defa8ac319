# SPDX-License-Identifier: GPL-2.0-or-later
"""
A user of the Python package and of libvirt-python, which is for one Python:

    libvirt_client.py URI DOMAIN SNAPSHOT
"""

import sys
import time

import libvirt
from ram_reset import LostError, Machine, RefusedError
from ram_reset.libvirt_monitor import monitor

uri, name, tag = sys.argv[1:]
# libvirt-python writes each error, unless it is told otherwise
libvirt.registerErrorHandler(lambda *_: None, None)
domain = libvirt.open(uri).lookupByName(name)


def refused(call, *words: str) -> None:
    try:
        call()
    except RefusedError as e:
        assert all(word in str(e) for word in words), e
        return
    raise AssertionError(f'{call} was not refused')


with Machine.attach(monitor(domain)) as machine:
    first = machine.find(tag)
    for _ in range(20):
        machine.restore(first)
        assert machine.status() == 'running'
    assert machine.statistics().rewinds == 20
    machine.restore(first, run=False)
    assert machine.status() == 'paused' and domain.state()[0] == \
        libvirt.VIR_DOMAIN_PAUSED
    machine.resume()
    second = machine.snapshot()
    machine.restore(second)
    machine.restore(first)
    assert machine.last_load().tag == tag and machine.last_load().rewound
    machine.delete(second)
    refused(lambda: machine.restore(second), second.name)
    refused(lambda: machine.execute('no-such-command'), 'no-such-command')
    assert machine.status() == 'running'

    # the user pauses it by libvirt
    domain.suspend()
    machine.restore(first)
    assert machine.status() == 'paused'
    domain.resume()
    machine.restore(first)
    assert machine.status() == 'running'

# it runs on, and can be attached to again
assert domain.isActive()
with Machine.attach(monitor(domain)) as machine:
    machine.restore(machine.find(tag))
    domain.destroy()
    begin = time.monotonic()
    try:
        machine.restore(machine.find(tag))
    except LostError:
        print(f'ok, after {time.monotonic() - begin:.3f} s')
    else:
        raise AssertionError('a domain that is gone is restored')
