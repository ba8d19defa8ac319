# SPDX-License-Identifier: GPL-2.0-or-later
"""The document that sets the number of hugepages, typed as it is."""

# Alone: one command sets the number of hugepages

import pytest

from lib import hugepages
from lib.typed import HERE, sets_hugepages, type_commands


@pytest.fixture
def pool():
    """At most as it was; the document reserves pages by itself."""
    if not hugepages.POOL.exists():
        pytest.skip('this kernel has no 2 MiB hugepages')
    had = hugepages.pool('nr_hugepages')
    yield
    hugepages.restore(had)


def test_commands(pool):
    document, = filter(sets_hugepages, HERE)
    type_commands(document)
