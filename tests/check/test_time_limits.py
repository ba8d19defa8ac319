# SPDX-License-Identifier: GPL-2.0-or-later
"""
No test fails only because its host is slow: none compares a time that it has
measured with a number, and limits of waiting are those of lib/patience.py.
"""

import ast
import itertools
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lib import patience
from lib.io.guest import ANSWERS, SECONDS, Churning, Stuck
from lib.products import REPO

CLOCKS = {'monotonic', 'monotonic_ns', 'perf_counter', 'perf_counter_ns',
          'time', 'time_ns'}
# measures, and waits for itself
ALLOWED = {'tests/lib/patience.py'}
NOT_RUN = {'bench', 'package'}
IN_C = re.compile(r'g_assert(?:_cmp\w+|_true)?\(([^;]*?(?:monotonic_time\(\)|'
                  r'g_timer_elapsed\(|elapsed|_ns\b)[^;]*?)(?:,\s*)?<=?(?:,\s*)?'
                  r'\s*[\dA-Z][\dA-Z_. *]*\)\s*;', re.DOTALL)


def is_clock(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and \
        isinstance(node.func, ast.Attribute) and \
        node.func.attr in CLOCKS and \
        isinstance(node.func.value, ast.Name) and node.func.value.id == 'time'


def name_of(node: ast.AST) -> str:
    """The name of a variable or a field; for a list's item, the list's."""
    while isinstance(node, (ast.Subscript, ast.Starred)):
        node = node.value
    return getattr(node, 'id', getattr(node, 'attr', ''))


def is_fixed(node: ast.AST) -> bool:
    """A number, a constant, or a limit that is one, and sums of those."""
    if isinstance(node, ast.BinOp):
        return is_fixed(node.left) and is_fixed(node.right)
    if isinstance(node, ast.Constant):
        return isinstance(node.value, (int, float))
    name = name_of(node)
    return name.isupper() or isinstance(node, ast.Attribute) and \
        name == 'timeout'


class Times:
    """The names in a file that are of times that have elapsed."""

    def __init__(self, tree: ast.AST):
        self._instants: set[str] = set()
        self._names: set[str] = set()
        before = -1
        while before < len(self._names) + len(self._instants):
            before = len(self._names) + len(self._instants)
            for node in ast.walk(tree):
                self._learn(node)

    def _learn(self, node: ast.AST) -> None:
        if isinstance(node, ast.FunctionDef):
            if any(isinstance(n, ast.Return) and n.value and
                   self.elapsed(n.value) for n in ast.walk(node)):
                self._names.add(node.name)
            return
        pairs = []
        if isinstance(node, ast.Assign):
            for target in node.targets:
                pairs += self._pairs(target, node.value)
        elif isinstance(node, (ast.NamedExpr, ast.AugAssign)):
            pairs = [(node.target, node.value)]
        elif isinstance(node, (ast.For, ast.comprehension)):
            pairs = [(node.target, node.iter)]
        elif isinstance(node, ast.Call) and node.args and \
                isinstance(node.func, ast.Attribute) and \
                node.func.attr in ('append', 'add'):
            pairs = [(node.func.value, node.args[0])]
        for target, value in pairs:
            if not (name := name_of(target)):
                continue
            if is_clock(value):
                self._instants.add(name)
            elif self.elapsed(value):
                self._names.add(name)

    @staticmethod
    def _pairs(target: ast.AST, value: ast.AST) -> list:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            return list(zip(target.elts, value.elts))
        return [(target, value)]

    def _instant(self, node: ast.AST) -> bool:
        return is_clock(node) or name_of(node) in self._instants

    def elapsed(self, node: ast.AST) -> bool:
        """Whether a time is in it; in a ratio of two, there is none."""
        if isinstance(node, ast.BinOp):
            if isinstance(node.op, ast.Sub) and \
                    (is_clock(node.left) or self._instant(node.left) and
                     self._instant(node.right)):
                return True
            if isinstance(node.op, ast.Div) and self.elapsed(node.right):
                return False
        if isinstance(node, ast.Subscript) and \
                isinstance(node.slice, ast.Constant) and \
                str(node.slice.value).endswith('-ns'):
            return True
        if isinstance(node, (ast.Name, ast.Attribute)) and \
                name_of(node) in self._names:
            return True
        # what is compared is no time, nor is a count of times
        if isinstance(node, ast.Compare) or isinstance(node, ast.Call) and \
                name_of(node.func) == 'len':
            return False
        return any(self.elapsed(n) for n in ast.iter_child_nodes(node))


def limited(node: ast.Compare) -> Iterator[tuple[ast.AST, ast.AST]]:
    """(what is to be less, than what)"""
    sides = [node.left, *node.comparators]
    for left, op, right in zip(sides, node.ops, sides[1:]):
        if isinstance(op, (ast.Lt, ast.LtE)):
            yield left, right
        elif isinstance(op, (ast.Gt, ast.GtE)):
            yield right, left


def complaints(text: str) -> list[str]:
    """Complaints about a test in Python."""
    tree, said = ast.parse(text), []
    times = Times(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            said += [f'{node.lineno}: a time is compared with a number'
                     for compare in ast.walk(node.test)
                     if isinstance(compare, ast.Compare)
                     for less, than in limited(compare)
                     if times.elapsed(less) and is_fixed(than)]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and \
                (is_clock(node.left) and is_fixed(node.right)):
            said.append(f'{node.lineno}: a fixed limit; lib/patience.py has '
                        'Limit')
    return said


def complaints_in_c(text: str) -> list[str]:
    return [f'{text[:found.start()].count(chr(10)) + 1}: a time is compared '
            'with a number' for found in IN_C.finditer(text)]


def sources(suffix: str) -> list[Path]:
    tests = REPO / 'tests'
    return [path for path in sorted(tests.rglob(f'*{suffix}'))
            if path.relative_to(tests).parts[0] not in NOT_RUN
            and str(path.relative_to(REPO)) not in ALLOWED]


@pytest.mark.parametrize('suffix, look', (('.py', complaints),
                                          ('.c', complaints_in_c)))
def test_no_test_wants_a_fast_host(suffix, look):
    files = sources(suffix)
    assert len(files) > 10
    assert not [f'{path.relative_to(REPO)}:{said}' for path in files
                for said in look(path.read_text())]


BEGIN = 'begin = time.monotonic()\n'


@pytest.mark.parametrize('text', (
    BEGIN + 'assert time.monotonic() - begin < 0.02',
    BEGIN + 'took = time.monotonic() - begin\nassert 2 * MOST >= took * 1000',
    BEGIN + 'end = time.monotonic()\nassert end - begin < 3 and end',
    BEGIN + 'all = []\nall.append(time.monotonic() - begin)\n'
            'assert max(all) < LIMIT and all',
    'def timed():\n    a = time.time()\n    return time.time() - a\n'
    'assert timed() <= 5',
    BEGIN + 'self.worst = max(self.worst, time.monotonic() - begin)\n'
            'assert watch.worst < PATIENCE',
    "took = obj['auto']['calibration-ns'] / 1e6\nassert took < 20",
    'deadline = time.monotonic() + 30',
    'deadline = time.monotonic() + guest.timeout',
))
def test_planted_in_python(text):
    assert complaints(text)


@pytest.mark.parametrize('text', (
    # a ratio, a lower limit, a duration that is asked for
    BEGIN + 'assert time.monotonic() - begin < RATIO * usual',
    BEGIN + 'part = own / (time.monotonic() - begin)\nassert part < 0.25',
    BEGIN + 'took = time.monotonic() - begin\nassert took >= count * 0.1',
    BEGIN + 'all = [time.monotonic() - begin]\nassert len(all) < 3',
    'end = time.monotonic() + seconds',
    'limit = Limit(30)\nassert not limit.over()',
))
def test_allowed_in_python(text):
    assert not complaints(text)


def test_planted_in_c():
    for text in ('g_assert_cmpint(g_get_monotonic_time() - begin, <, 20000);',
                 'g_assert_cmpint(median_ns,\n <=, 20 * SCALE_MS);',
                 'g_assert_true(elapsed < 2.5);'):
        assert complaints_in_c(text)
    for text in ('g_assert_cmpint(g_get_monotonic_time() - begin, >=, 2050);',
                 'g_assert_cmpint(new_ns, <=, 2 * old_ns);',
                 'g_assert_cmpint(median[1] * 2, <=, median[0]);'):
        assert not complaints_in_c(text)


# lib/patience.py

class Fake:
    """A host: how long its work takes, and the time that it tells."""

    def __init__(self, monkeypatch):
        self.now, self.load, self.works = 1000.0, 0.0, 0
        self.took = patience.NOMINAL, patience.NOMINAL
        monkeypatch.setattr(patience, 'HOST', patience.Host())
        monkeypatch.setattr(patience, 'work', self._work)
        monkeypatch.setattr(time, 'monotonic', lambda: self.now)
        monkeypatch.setattr(os, 'sched_getaffinity', lambda pid: {0, 1})
        monkeypatch.setattr(os, 'getloadavg', lambda: (self.load, 0.0, 0.0))

    def _work(self) -> tuple[float, float]:
        self.works += 1
        return self.took


@pytest.fixture
def host(monkeypatch) -> Fake:
    return Fake(monkeypatch)


@pytest.mark.parametrize('load, elapsed, cpu, expected', (
    (0, 1, 1, 1), (0, 0.5, 0.5, 1),     # never below 1
    (13, 1, 1, 6.5), (0, 3, 1, 3), (8, 3, 1, 4),
    (0, 2, 2, 2), (4, 2, 2, 4), (40, 1, 1, 10), (0, 40, 1, 10)))
def test_slowness(host, load, elapsed, cpu, expected):
    host.load = load
    host.took = elapsed * patience.NOMINAL, cpu * patience.NOMINAL
    assert patience.patience(30.0) == pytest.approx(30.0 * expected)


def test_limit_grows_with_the_load(host):
    limit = patience.Limit(30.0)
    host.now += 29
    assert not limit.over()
    host.load = 6                       # others have come
    host.now += 2
    assert limit.left() == pytest.approx(59)
    host.load = 0                       # they were there, though
    host.now += 58
    assert not limit.over()
    host.now += 2
    assert limit.over()


def test_limit_is_looked_at_once_more(host):
    limit = patience.Limit(30.0)
    assert not limit.over()
    assert host.works == 1
    host.now += 31
    host.took = 2 * patience.NOMINAL, patience.NOMINAL
    assert not limit.over()
    assert host.works == 2 and limit.seconds() == pytest.approx(60)
    host.now += 30
    assert limit.over()


def test_this_host():
    """The real thing takes no longer than it may."""
    assert 1 <= patience.Host().slowness() <= patience.MOST


# lib/io/guest.py: a guest is stuck, or slow

PAUSE = SECONDS / 100


def wait(host, states: Iterator[int], pause: float = PAUSE) -> int:
    """How often it was asked until it had none of @states any more."""
    asked = 0

    def missing() -> dict[str, object]:
        nonlocal asked
        asked += 1
        host.now += pause
        return {'disk': state for state in itertools.islice(states, 1)}
    Churning.wait_for(None, missing)
    return asked


@pytest.mark.parametrize('load, slower', ((0, 1), (8, 4)))
def test_stuck(host, load, slower):
    host.load = load
    begin = host.now
    with pytest.raises(Stuck, match='^disk: nothing for '):
        wait(host, itertools.repeat(1))
    assert host.now - begin == pytest.approx(slower * SECONDS, rel=0.1)


def test_stuck_only_if_it_answers(host):
    assert wait(host, iter([1] * ANSWERS), SECONDS) == ANSWERS + 1
    with pytest.raises(Stuck):
        wait(host, itertools.repeat(1), SECONDS)


def test_slow_is_not_stuck(host):
    assert wait(host, (n // 80 for n in range(1000))) == 1001
    host.load = 4
    assert wait(host, iter([1] * 150)) == 151
