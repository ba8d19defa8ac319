# SPDX-License-Identifier: GPL-2.0-or-later
"""
Says a message to a QEMU by QMP, when the jobs are over: say.py SOCKET JSON.
Run as a program, in a sandbox.
"""

import json
import sys
import time

from qemu.qmp.legacy import QEMUMonitorProtocol

OVER = 'concluded', 'null', 'ready', 'pending'


def say(path: str, message: dict) -> object:
    """As somebody does who looks at the jobs before the next message."""
    with QEMUMonitorProtocol(path) as qmp:
        qmp.connect()
        while any(job['status'] not in OVER for job in qmp.cmd('query-jobs')):
            time.sleep(0.01)
        return qmp.cmd(message['execute'], **message.get('arguments', {}))


if __name__ == '__main__':
    print(json.dumps(say(sys.argv[1], json.loads(sys.argv[2]))))
