# SPDX-License-Identifier: GPL-2.0-or-later
"""scripts/check-layers: what it has to find is found, in objects made here."""

import json
import subprocess

import pytest

import layers

FLOORS = ({'attic': ('system/attic/*',)},
          {'left': ('system/left/*',), 'right': ('system/right/*',)},
          {'cellar': ('system/cellar/*',)})


def build(tmp_path, sources):
    """A build folder like QEMU's, of {file: code}."""
    source, out = tmp_path / 'source', tmp_path / 'build'
    out.mkdir()
    commands = []
    for number, (name, code) in enumerate(sources.items()):
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
        subprocess.run(['cc', '-c', path, '-o', out / f'{number}.o'],
                       check=True)
        commands.append({'directory': str(out), 'file': str(path),
                         'output': f'{number}.o'})
    (out / 'compile_commands.json').write_text(json.dumps(commands))
    return layers.built_objects(out, source, source)


def house(tmp_path, sources):
    return layers.read_house(build(tmp_path, sources), FLOORS)


def calling(*names):
    """Code that defines the first and calls the others."""
    declared = ''.join(f'void {n}(void); ' for n in names)
    body = ' '.join(f'{n}();' for n in names[1:])
    return f'{declared}\nvoid {names[0]}(void)\n{{\n    {body}\n}}\n'


GOOD = {'system/attic/a.c': calling('attic', 'left', 'right', 'cellar'),
        'system/left/l.c': calling('left', 'cellar'),
        'system/right/r.c': calling('right', 'other'),
        'system/right/other.c': calling('other', 'cellar'),
        'system/cellar/c.c': calling('cellar', 'abort')}


def test_calls_downwards_are_right(tmp_path):
    h = house(tmp_path, GOOD)
    assert len(h.files) == 5 and not h.upward() and not h.circles()
    assert h.room_calls() == {('attic', 'left'): 1, ('attic', 'right'): 1,
                              ('attic', 'cellar'): 1, ('left', 'cellar'): 1,
                              ('right', 'cellar'): 1}


def test_planted_upward_call(tmp_path):
    h = house(tmp_path,
              GOOD | {'system/cellar/planted.c': calling('planted', 'left')})
    assert h.upward() == [layers.Call('system/cellar/planted.c',
                                      'system/left/l.c', 'left')]


def test_planted_use_of_data(tmp_path):
    code = 'extern int flag;\nint *where(void)\n{\n    return &flag;\n}\n'
    h = house(tmp_path, GOOD | {'system/attic/flag.c': 'int flag = 1;\n',
                                'system/left/planted.c': code})
    assert [c.symbol for c in h.upward()] == ['flag']


def test_planted_weak_call(tmp_path):
    code = ('void left(void) __attribute__((weak));\n'
            'void planted(void)\n{\n    left();\n}\n')
    h = house(tmp_path, GOOD | {'system/cellar/planted.c': code})
    assert [c.symbol for c in h.upward()] == ['left']


def test_symbol_with_two_homes(tmp_path):
    code = 'void __attribute__((weak)) left(void)\n{\n}\n'
    with pytest.raises(layers.Failure, match='both define left'):
        house(tmp_path, GOOD | {'system/attic/planted.c': code})


def test_rooms_of_one_floor(tmp_path):
    h = house(tmp_path,
              GOOD | {'system/left/planted.c': calling('planted', 'right')})
    assert [c.provider for c in h.upward()] == ['system/right/r.c']


def test_planted_circle(tmp_path):
    h = house(tmp_path,
              {'system/left/a.c': calling('a', 'b'),
               'system/left/b.c': calling('b', 'c'),
               'system/left/c.c': calling('c', 'a')})
    assert not h.upward()
    assert h.circles() == [['system/left/a.c', 'system/left/b.c',
                            'system/left/c.c']]
    assert h.symbols('system/left/c.c', 'system/left/a.c') == ['a']


def test_planted_include(tmp_path):
    """A type has no symbol, but whoever includes it knows the room."""
    for name in ('system/left/l.h', 'system/cellar/c.h'):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    text = '#include "l.h"\n#include "system/cellar/c.h"\n#include <l.h>\n'
    for name, found in (('system/left/l.c', []),
                        ('system/attic/a.c', []),
                        ('system/cellar/c.c', ['system/left/l.h'])):
        for planted in ('"system/left/l.h"', '"../left/l.h"',
                        '<system/left/l.h>'):
            new = text.replace('"l.h"', planted).replace('#inc', '# inc')
            assert list(layers.upward_includes(name, new, tmp_path,
                                               FLOORS)) == found


ROOMS = {'load': 'migration/ram-reset/load.c',
         'check': 'migration/ram-reset/partial-load.c',
         'verify': 'migration/ram-reset/verify/ram.c',
         'snapshot': 'migration/ram-reset/snapshot.c',
         'vmstate': 'migration/ram-reset/vmstate/stream.c',
         'rewind': 'system/ram-reset/rewind/tracking.c',
         'machine': 'system/ram-reset/machine/vcpus.c'}


def test_rooms_of_migration(tmp_path):
    """Each calls all below it, and so does a file of no other room."""
    names = [room.replace('-', '_') for room in ROOMS]
    sources = {file: calling(*names[i:])
               for i, file in enumerate(ROOMS.values())}
    sources['migration/ram-reset/blockers.c'] = calling('other', *names[1:])
    h = layers.read_house(build(tmp_path, sources))
    assert {room: h.room[file] for room, file in ROOMS.items()} == \
        {room: room for room in ROOMS}
    assert h.room['migration/ram-reset/blockers.c'] == 'load'
    assert not h.upward() and not h.circles()


@pytest.mark.parametrize('user, provider', (
    ('vmstate', 'load'), ('vmstate', 'snapshot'), ('snapshot', 'check'),
    ('verify', 'check'), ('machine', 'rewind'), ('machine', 'vmstate')))
def test_planted_call_in_migration(tmp_path, user, provider):
    sources = {ROOMS[provider]: calling(provider),
               ROOMS[user]: calling('planted', provider)}
    h = layers.read_house(build(tmp_path, sources))
    assert h.upward() == [layers.Call(ROOMS[user], ROOMS[provider], provider)]


def test_planted_include_in_migration(tmp_path):
    name = 'migration/ram-reset/load.h'
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).touch()
    text = f'#include "{name}"\n'
    for room, file in ROOMS.items():
        found = list(layers.upward_includes(file, text, tmp_path))
        assert found == ([] if room == 'load' else [name])


def test_file_in_no_room(tmp_path):
    with pytest.raises(layers.Failure, match='system/yard/y.c is in no room'):
        house(tmp_path, GOOD | {'system/yard/y.c': calling('y')})


def test_object_that_is_missing(tmp_path):
    objects = build(tmp_path, GOOD)
    objects['system/left/l.c'].unlink()
    with pytest.raises(layers.Failure, match='nm cannot read'):
        layers.read_house(objects, FLOORS)


def test_file_that_is_not_built(tmp_path):
    build(tmp_path, GOOD)
    (tmp_path / 'source/system/left/lost.c').touch()
    with pytest.raises(layers.Failure, match='lost.c is not built'):
        layers.built_objects(tmp_path / 'build', tmp_path / 'source',
                             tmp_path / 'source')


def test_no_build(tmp_path):
    with pytest.raises(layers.Failure, match='holds no build of QEMU'):
        layers.built_objects(tmp_path, tmp_path, tmp_path)


def test_lengths():
    """Functions, not types, tables, macros or declarations."""
    text = ('int a(void);\n'
            'static int b(int x,\n         int y)\n{\n    return 0;\n}\n'
            'typedef struct C {\n    int (*f)(void);\n} C;\n'
            'static const int d[] = {\n    1,\n};\n'
            'DEFINE_TYPES(d)\n'
            'void e(void)\n{\n}\n')
    assert list(layers.function_lengths(text)) == [(5, 'b'), (3, 'e')]


def test_map_is_of_the_house(tmp_path):
    h = house(tmp_path, GOOD)
    svg = layers.draw(h, FLOORS)
    assert svg.startswith('<?xml') and f'<!-- {layers.dumps(h)} -->' in svg
    other = layers.House(h.files, h.calls[1:], FLOORS)
    assert layers.dumps(other) != layers.dumps(h)
