# SPDX-License-Identifier: GPL-2.0-or-later
"""conftest.py: threads can start programs while pytest goes on."""

import concurrent.futures
import os
import subprocess

from lib.effort import rounds

RUNS = rounds(600, 150)
MORE = {f'RAM_RESET_TEST_{i}': 'x' for i in range(40)}


def test_environment_changes_while_programs_start():
    """As it does between two tests: one in 25 of these failed by EFAULT."""
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        runs = [pool.submit(subprocess.run, ['true'], check=True)
                for _ in range(RUNS)]
        while not all(run.done() for run in runs):
            os.environ.update(MORE)
            for name in MORE:
                del os.environ[name]
        for run in runs:
            run.result()
