# SPDX-License-Identifier: GPL-2.0-or-later
"""
How much the tests try.  There are three efforts:

    ./test               some rounds, and some combinations of parameters
    ./test --all         more of both
    RAM_RESET_LONG=1     all of both

No behaviour is left out.  A mark of a test says which of its combinations
./test runs:
    any_value:  the first that this host can run,
    each_value: enough to have each value of each parameter,
    each_pair:  enough to have each two values of two parameters.
./test --all takes one value more together: each value, each pair, each three.
./test leaves out a test with the mark long(why), unless it chooses no other, as
by its name.
"""

import itertools
import math
import os

import pytest

from lib import hugepages

# Tests that otherwise try some of many cases try all, see CONTRIBUTING.md
LONG = os.environ.get('RAM_RESET_LONG') == '1'
ALL = LONG or os.environ.get('RAM_RESET_ALL') == '1'
MARKS = {'any_value': 0, 'each_value': 1, 'each_pair': 2}


def rounds(full: int, short: int) -> int:
    """
    How often, or how long: @short with ./test, @full with RAM_RESET_LONG=1,
    and with ./test --all the geometric mean, or half of @full if @short is 0.
    """
    if LONG or not ALL:
        return full if LONG else short
    return round(math.sqrt(full * short) or full / 2)


def tried(full, few):
    """What is tried: @full with ./test --all."""
    return full if ALL else few


def runs_here(item: pytest.Item) -> bool:
    """False for what would be skipped, and would cover nothing then."""
    values = [str(value) for value in item.callspec.params.values()]
    if any(value.startswith('kvm') for value in values) and \
            not os.access('/dev/kvm', os.R_OK | os.W_OK):
        return False
    return not any('hugetlb' in value for value in values) or has_hugepages()


def has_hugepages() -> bool:
    """Whether there are any, or may be."""
    return hugepages.POOL.exists() and (
        hugepages.pool('nr_hugepages') > 0 or
        os.access(hugepages.POOL / 'nr_hugepages', os.W_OK))


def covering(items: list[pytest.Item], together: int) -> list[pytest.Item]:
    """
    Some of a test's @items, with every @together values of its parameters that
    occur in one of them.  Greedy: the one with the most that is new; of such,
    that whose values have been taken least.
    """
    values = {item: sorted((name, repr(value)) for name, value
                           in item.callspec.params.items()) for item in items}
    tuples = {item: set(itertools.combinations(values[item], min(
        together, len(values[item])))) for item in items}
    missing = set().union(*tuples.values())
    taken: dict[tuple[str, str], int] = {}
    chosen = []
    while missing:
        best = max(items, key=lambda item: (
            len(tuples[item] & missing),
            -sum(taken.get(value, 0) for value in values[item])))
        chosen.append(best)
        missing -= tuples[best]
        for value in values[best]:
            taken[value] = taken.get(value, 0) + 1
    return chosen


def pytest_configure(config: pytest.Config) -> None:
    for mark in MARKS:
        config.addinivalue_line('markers', f'{mark}: see lib/effort.py')
    config.addinivalue_line('markers', 'long(why): see lib/effort.py')


# last, so that it is what -k has chosen that is covered
@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config,
                                  items: list[pytest.Item]) -> None:
    if LONG:
        return
    long = {item for item in items
            if item.get_closest_marker('long') and not ALL}
    dropped = long if len(long) < len(items) else set()
    tests: dict[tuple, list[pytest.Item]] = {}
    for item in [item for item in items if item not in dropped]:
        for mark, together in MARKS.items():
            if item.get_closest_marker(mark):
                # only the test itself finds out what KVM boots
                accel = item.callspec.params.get('each_linux_accel')
                key = item.path, item.originalname, accel, together + ALL
                tests.setdefault(key, []).append(item)
    for (*_, together), variants in tests.items():
        runnable = [item for item in variants if runs_here(item)]
        skipped = [item for item in variants if item not in runnable]
        dropped |= {*variants} - {*covering(runnable, together), *skipped[:1]}
    if dropped:
        config.hook.pytest_deselected(items=list(dropped))
        items[:] = [item for item in items if item not in dropped]
