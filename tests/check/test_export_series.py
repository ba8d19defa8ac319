# SPDX-License-Identifier: GPL-2.0-or-later
"""scripts/export-series: what it refuses, and when nothing can be had."""

import sys

import pytest

import common
from common import Failure, RELEASES
from lib.scripts import load


@pytest.fixture
def export(tmp_path, monkeypatch):
    """Calls it where Debian has only what is in .had; .wrote tells of it."""
    module = load('export-series')

    def stock_of(release: str) -> str:
        if release not in call.had:
            raise Failure(f'no {release}')
        return release
    monkeypatch.setattr(common, 'stock_of', stock_of)
    monkeypatch.setattr(module, 'qemu_version', lambda stock: f'{stock}.0')
    monkeypatch.setattr(module, 'identity', lambda: ('Me', 'me@example.org'))
    monkeypatch.setattr(module, 'export', lambda stock, *unused:
                        call.wrote.append(stock))

    def call(*args: str) -> None:
        monkeypatch.setattr(sys, 'argv',
                            ['export-series', str(tmp_path / 'out'), *args])
        module.run()
    call.had, call.wrote = list(RELEASES), []
    return call


def test_all_that_can_be_had(export, capsys):
    export.had.remove('11.1')
    export()
    assert export.wrote == ['10.0', '10.2']
    assert 'QEMU 11.1 is left out: no 11.1' in capsys.readouterr().out


def test_nothing_to_be_had_is_an_error(export):
    export.had.clear()
    with pytest.raises(Failure, match='nothing was written to .*--qemu-src'):
        export()


def test_what_is_named_is_not_left_out(export):
    export.had.remove('10.2')
    with pytest.raises(Failure, match='^no 10.2'):
        export('10.0', '10.2')


def test_a_release_named_twice_is_written_once(export):
    export('10.2', '10.2')
    assert export.wrote == ['10.2']


def test_unknown_release(export):
    with pytest.raises(Failure, match='QEMU 9.9, x is not known; name one of '
                                      '10.0, 10.2, 11.1, or a source'):
        export('10.0', '9.9', 'x')
    assert not export.wrote


def test_release_and_source(export):
    with pytest.raises(Failure, match='exclude each other'):
        export('--qemu-src', 'debian:10.2', '10.0')


@pytest.mark.parametrize('wheel', (False, True))
def test_a_source_without_meson(tmp_path, wheel):
    """As Debian's is; QEMU's tarballs have a wheel."""
    (tmp_path / 'python/wheels').mkdir(parents=True)
    (tmp_path / 'pythondeps.toml').write_text(
        '[meson]\nmeson = { accepted = ">=1.5.0", installed = "1.5.0" }\n')
    if wheel:
        (tmp_path / 'python/wheels/meson-1.5.0-py3-none-any.whl').touch()
    told = load('export-series').meson_remedy(tmp_path)
    assert (told is None) == wheel
    if told:
        assert 'python/wheels/meson-*.whl' in told
        assert 'meson>=1.5.0,<2' in told and '--python=' in told
