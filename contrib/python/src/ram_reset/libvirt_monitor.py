# SPDX-License-Identifier: GPL-2.0-or-later
"""
The monitor of a libvirt domain, which libvirt keeps for itself:

>>> import libvirt
>>> from ram_reset import Machine
>>> from ram_reset.libvirt_monitor import monitor
>>> domain = libvirt.open('qemu:///system').lookupByName('sandbox')
>>> with Machine.attach(monitor(domain)) as machine:
...     machine.restore(machine.find('clean'))

Needs libvirt-python: pip install './contrib/python[libvirt]'.
"""

import json
import socket
import threading
from typing import Any, Dict, Iterator, Mapping

try:
    import libvirt
    import libvirt_qemu
except ImportError as error:
    raise ImportError('libvirt-python is missing; install the extra libvirt of '
                      'this package') from error

GREETING: Dict[str, Any] = {'QMP': {'version': {}, 'capabilities': []}}
# Commands after which, or before which, the guest may have another state
CHANGING = 'stop', 'cont', 'system_reset', 'human-monitor-command'


class _Bridge:
    """
    Speaks QMP on a socket, and passes commands on to libvirt.  Libvirt keeps
    the events: the run state is asked for, and told as an event, so that it
    comes before the reply.
    """

    def __init__(self, domain: Any, end: socket.socket):
        self._domain = domain
        self._end = end
        self._state = ''

    def serve(self) -> None:
        """Until the other end is closed, or libvirt has lost the domain."""
        with self._end:
            try:
                self._say(GREETING)
                for asked in self._read():
                    self._answer(asked)
            except (OSError, libvirt.libvirtError):
                pass        # the other end sees that this one is closed

    def _read(self) -> Iterator[Dict[str, Any]]:
        """Commands, which nothing separates."""
        decoder, data = json.JSONDecoder(), b''
        while True:
            new = self._end.recv(65536)
            if not new:
                return
            data += new
            try:
                text = data.decode().lstrip()
                while text:
                    asked, end = decoder.raw_decode(text)
                    text = text[end:].lstrip()
                    data = text.encode()
                    yield asked
            except ValueError:
                pass        # the rest is to come

    def _say(self, message: Mapping[str, object]) -> None:
        self._end.sendall(json.dumps(message).encode() + b'\n')

    def _answer(self, asked: Dict[str, Any]) -> None:
        number = {'id': asked.pop('id')} if 'id' in asked else {}
        command = asked['execute']
        if command == 'qmp_capabilities':
            reply: Mapping[str, object] = {'return': {}}
        else:
            if command in CHANGING:
                self._tell_state()
            reply = self._do(asked)
            if command in CHANGING:
                self._tell_state()
        self._say({**reply, **number})

    def _do(self, asked: Mapping[str, object]) -> Mapping[str, Any]:
        """Its reply, without a number: that is libvirt's."""
        try:
            reply = json.loads(libvirt_qemu.qemuMonitorCommand(
                self._domain, json.dumps(asked), 0))
        except libvirt.libvirtError as e:
            if not self._domain.isActive():
                raise
            return {'error': {'class': 'GenericError', 'desc': str(e)}}
        return {key: value for key, value in reply.items() if key != 'id'}

    def _tell_state(self) -> None:
        found = self._do({'execute': 'query-status'})
        state = str(found.get('return', {}).get('status', ''))
        if state != self._state:
            self._state = state
            name = {'running': 'RESUME', 'shutdown': 'SHUTDOWN'}
            self._say({'event': name.get(state, 'STOP'),
                       'data': {'guest': True, 'reason': 'guest-shutdown'}
                       if state == 'shutdown' else {},
                       'timestamp': {'seconds': 0, 'microseconds': 0}})


def monitor(domain: Any) -> socket.socket:
    """
    An address for Machine.attach().

    :param domain: of libvirt-python, which runs; libvirt marks it as tainted,
        as it does for each command of another program
    """
    ours, theirs = socket.socketpair()
    threading.Thread(target=_Bridge(domain, theirs).serve, daemon=True,
                     name='ram-reset-libvirt').start()
    return ours
