# SPDX-License-Identifier: GPL-2.0-or-later
"""scripts/build-cross: qemu-user is there as a whole, or not."""

from pathlib import Path

import pytest

from lib.scripts import load


@pytest.fixture
def cross(tmp_path, monkeypatch):
    """The script, with a folder of its own and without an archive."""
    module = load('build-cross')

    class Archive:
        def __init__(self, *unused, **unused_too):
            pass

        def unpack(self, *packages, into):
            (into / 'usr/bin').mkdir(parents=True)
            for _, name, _ in module.MACHINES.values():
                (into / f'usr/bin/qemu-{name}').touch()
    monkeypatch.setattr(module, 'Apt', Archive)
    monkeypatch.setattr(module, 'BUILD', tmp_path)
    monkeypatch.setattr(module, 'EMULATORS', tmp_path / 'cross/qemu-user')
    for name in ('check_compiler', 'libraries', 'kernel', 'meson'):
        monkeypatch.setattr(module, name, lambda *unused: None)
    return module


def names(cross) -> set[str]:
    return {path.name for path in cross.EMULATORS.iterdir()}


def test_stamp_is_where_it_is_asked_for(cross, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr('sys.argv', ['build-cross', 's390x', '--stamp', 'done'])
    cross.run()
    assert (tmp_path / 'done').exists()


WHOLE = {'qemu-aarch64', 'qemu-s390x'}


@pytest.mark.parametrize('moves', range(3))
def test_interrupted_between_two_files(cross, monkeypatch, moves):
    done, rename = [], Path.rename

    def interrupted(path, target):
        if len(done) == moves:
            raise KeyboardInterrupt
        done.append(path)
        return rename(path, target)
    with monkeypatch.context() as patch:
        patch.setattr(Path, 'rename', interrupted)
        with pytest.raises(KeyboardInterrupt):
            cross.build('s390x')
    assert not cross.EMULATORS.exists()
    cross.build('s390x')
    assert names(cross) == WHOLE


def test_half_a_folder_is_fetched_anew(cross):
    cross.EMULATORS.mkdir(parents=True)
    (cross.EMULATORS / 'qemu-aarch64').touch()
    cross.build('arm64')
    assert names(cross) == WHOLE
