# SPDX-License-Identifier: GPL-2.0-or-later
"""virt-install, many times: what takes most of its time is done but once.

    installer.py FOLDER

FOLDER is where virt-install's modules are.  A line of standard input is a JSON
list of arguments, a line of the output a JSON list: what virt-install has
written, what it has complained of, and its status.
"""

import json
import os
import sys
import tempfile

sys.path.insert(0, sys.argv[1])

from virtinst import OSDB, virtinstall     # noqa: E402


def run(arguments: list[str]) -> tuple[str, str, int]:
    with tempfile.TemporaryFile('w+') as out, \
            tempfile.TemporaryFile('w+') as err:
        child = os.fork()
        if not child:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            sys.argv = ['virt-install', *arguments]
            # it exits in any case
            virtinstall.runcli()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        for file in (out, err):
            file.seek(0)
        return out.read(), err.read(), status


OSDB.list_os()
for line in sys.stdin:
    print(json.dumps(run(json.loads(line))), flush=True)
