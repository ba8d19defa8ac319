# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs in Python that use machines, see scripts/fetch-python-clients."""

import importlib
import os
import site
import sysconfig
from pathlib import Path
from types import ModuleType

import pytest

from lib import products

VENV = Path(os.environ.get('RAM_RESET_CLIENTS') or
            products.BUILD / 'clients-venv')


def client(name: str) -> ModuleType:
    """A module of them; the tests that need it are skipped without it."""
    folder = Path(sysconfig.get_path('purelib', vars={
        'base': str(VENV), 'platbase': str(VENV)}))
    site.addsitedir(str(folder))
    try:
        return importlib.import_module(name)
    except ImportError as e:
        missing = VENV.with_name(f'{VENV.name}.missing')
        why = missing.read_text().strip() if missing.exists() else \
            'scripts/fetch-python-clients installs it'
        pytest.skip(f'{e} ({why})', allow_module_level=True)
