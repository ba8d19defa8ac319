# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures of libvirt tests: both daemons, and the axes of the matrix."""

from collections.abc import Iterator

import pytest

# in this order: domains makes the modules of the functional tests known
from lib.domains import MEMORIES, OBJECTS, Config, Domain, saved
from lib.fixtures import built, huge_pool   # noqa: F401
from lib.libvirtd import GENERATIONS, Libvirtd, Unavailable


@pytest.fixture(scope='session', params=GENERATIONS)
def daemon(request) -> Iterator[Libvirtd]:
    try:
        libvirtd = Libvirtd(request.param)
    except Unavailable as e:
        pytest.skip(str(e))
    with libvirtd:
        yield libvirtd


@pytest.fixture(params=MEMORIES)
def memory(request) -> str:
    if 'hugepages' in request.param:
        request.getfixturevalue('huge_pool')
    return request.param


@pytest.fixture(params=OBJECTS)
def ram_reset(request) -> tuple[str, ...]:
    return OBJECTS[request.param]


@pytest.fixture
def guest(daemon, memory, ram_reset) -> Iterator[Domain]:
    with saved(daemon, Config(memory, ram_reset)) as domain:
        yield domain


@pytest.fixture
def plain_guest(daemon, ram_reset) -> Iterator[Domain]:
    """For tests of something that is the same whatever its memory is."""
    with saved(daemon, Config(objects=ram_reset)) as domain:
        yield domain
