# SPDX-License-Identifier: GPL-2.0-or-later
"""Modules of scripts without a suffix, for tests to call."""

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from types import ModuleType

from lib.products import REPO


def load(name: str, folder: str = 'scripts') -> ModuleType:
    """A script in Python, without running it."""
    loader = SourceFileLoader(f'loaded_{name.removesuffix(".py")}'
                              .replace('-', '_'), str(REPO / folder / name))
    module = module_from_spec(spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module
