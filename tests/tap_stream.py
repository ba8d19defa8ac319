# SPDX-License-Identifier: GPL-2.0-or-later
"""pytest plugin: TAP on stdout for meson, pytest's own report on stderr.

The plan comes last, so that a run which dies early is seen to be incomplete.
"""

import os
import sys

import pytest

_tap = os.fdopen(os.dup(1), 'w')
_count = 0


def _emit(ok, name, note=''):
    global _count
    _count += 1
    name = name.replace('#', '_')
    print(f'{"ok" if ok else "not ok"} {_count} {name}{note}',
          file=_tap, flush=True)


def _reason(report):
    if isinstance(report.longrepr, tuple):
        text = report.longrepr[2].removeprefix('Skipped: ')
    else:
        text = getattr(report, 'wasxfail', '')
    return ' '.join(text.split())


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    reporter = config.pluginmanager.get_plugin('terminalreporter')
    reporter._tw._file = sys.stderr


def pytest_collectreport(report):
    if report.failed:
        _emit(False, f'{report.nodeid} (collection)')
    elif report.skipped:
        _emit(True, report.nodeid, f' # SKIP {_reason(report)}')


def pytest_runtest_logreport(report):
    name = report.nodeid.split('/')[-1]
    if report.skipped and hasattr(report, 'wasxfail'):
        _emit(False, name, f' # TODO {_reason(report)}')
    elif report.skipped:
        _emit(True, name, f' # SKIP {_reason(report)}')
    elif report.when == 'call':
        _emit(report.passed, name)
    elif report.failed:
        _emit(False, f'{name} ({report.when})')


def pytest_sessionfinish(session):
    print(f'1..{_count}', file=_tap, flush=True)
