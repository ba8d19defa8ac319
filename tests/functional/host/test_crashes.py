# SPDX-License-Identifier: GPL-2.0-or-later
"""A test in which QEMU crashes says where."""

import re
import signal

import pytest

from lib import crashes, products
from lib.guests import Ring3
from lib.machine import MIB, MachineError
from lib.patience import patience


def test_crash_is_explained(tmp_path, fast_accel):
    if crashes.is_sanitized(products.QEMU):
        pytest.skip('a sanitizer reports crashes itself')
    with Ring3(tmp_path, accel=fast_accel, ram=64 * MIB) as guest:
        guest.stop()
        guest.process.send_signal(signal.SIGSEGV)
        guest.process.wait(patience(60))
        with pytest.raises(MachineError) as error:
            guest.qmp('query-status')
    assert 'crash: signal 11' in str(error.value)
    # the command before may have been answered, but not be over yet
    assert re.search('(qemu_main_loop|coroutine_trampoline) at ',
                     str(error.value))
