# SPDX-License-Identifier: GPL-2.0-or-later
"""The calls between files, from the symbols of built objects, and the room of
the house that each file belongs to.  See scripts/check-layers.
"""

import json
import os
import re
import subprocess
from collections import namedtuple
from fnmatch import fnmatch
from pathlib import Path

from common import Failure

ENGINE = 'system/ram-reset'
SNAPSHOTS = 'migration/ram-reset'

# Files in migration/ram-reset/ that the course of a load and of a save calls
CHECKS = ('check', 'layout', 'plan', 'devices', 'baseline', 'partial-load',
          'page-store', 'parents', 'qcow2')

# The order of the rooms, from the top of the house to its ground: the name of
# each, and the files in it, of which the longest pattern counts.  Code may use
# its own room or one further down.  Rooms on one floor do not use each other.
FLOORS = (
    {'hw/misc': ('hw/misc/snapctl*',)},
    # with all files of migration/ram-reset/ that no room below has
    {'load': (f'{SNAPSHOTS}/*',)},
    {'check': tuple(f'{SNAPSHOTS}/{name}.[ch]' for name in CHECKS)},
    {'verify': (f'{SNAPSHOTS}/verify/*',)},
    {'snapshot': (f'{SNAPSHOTS}/snapshot.[ch]',)},
    {'vmstate': (f'{SNAPSHOTS}/vmstate/*',)},
    {'rewind': (f'{ENGINE}/rewind/*',), 'devices': (f'{ENGINE}/devices/*',)},
    {'machine': (f'{ENGINE}/machine/*',)},
    {'template': (f'{ENGINE}/template/*',)},
    {'auto': (f'{ENGINE}/auto/*',)},
    {'unpopulated': (f'{ENGINE}/unpopulated.c',)},
    {'reset': (f'{ENGINE}/reset.[ch]',)},
    {'hugefile': (f'{ENGINE}/hugefile/*',),
     'strategy': (f'{ENGINE}/strategy/*',),
     'measure': (f'{ENGINE}/measure/*',)},
    {'object': (f'{ENGINE}/object.[ch]', f'{ENGINE}/block-list.[ch]',
                f'{ENGINE}/report.[ch]', f'{ENGINE}/disks.[ch]')},
    {'block': (f'{ENGINE}/block/*',)},
    {'options': (f'{ENGINE}/options.[ch]', f'{ENGINE}/flags.c',
                 f'{ENGINE}/disk-hook.c', f'{ENGINE}/at-snapshot.c')},
    {'prim': (f'{ENGINE}/prim/*',)},
)
OURS = ('hw/*', 'migration/*', 'system/*')
# Built for other hosts or configurations only
STUBS = '*stub.c'

# @user and @provider are files; @user needs @symbol, which @provider has
Call = namedtuple('Call', 'user provider symbol')


def find_room(file, floors=FLOORS):
    """(number of the floor, name of the room); None if it is in none"""
    found = [(len(pattern), level, room) for level, rooms in enumerate(floors)
             for room, patterns in rooms.items() for pattern in patterns
             if fnmatch(file, pattern)]
    return max(found)[1:] if found else None


def goes_up(user, provider):
    """Whether one room must not use the other, both as find_room() has them."""
    return user[1] != provider[1] and user[0] >= provider[0]


class House:
    """Files, their rooms and what they call."""

    def __init__(self, files, calls, floors=FLOORS):
        self.files = sorted(files)
        self.calls = sorted(calls)
        self.place = {f: find_room(f, floors) for f in self.files}
        lost = [f for f in self.files if not self.place[f]]
        if lost:
            raise Failure(f'{lost[0]} is in no room of the house; move it to '
                          'one, or add the room to scripts/layers.py')
        self.room = {f: place[1] for f, place in self.place.items()}

    def upward(self):
        """Calls to another room that does not lie below."""
        return [c for c in self.calls
                if goes_up(self.place[c.user], self.place[c.provider])]

    def circles(self):
        """Lists of files each of which calls the next, and the last the first."""
        below = {f: sorted({c.provider for c in self.calls if c.user == f})
                 for f in self.files}
        return [path_around(group, below) for group in components(below)]

    def symbols(self, user, provider):
        return [c.symbol for c in self.calls
                if (c.user, c.provider) == (user, provider)]

    def room_calls(self):
        """{(user's room, provider's room): number of symbols}"""
        count = {}
        for c in self.calls:
            pair = self.room[c.user], self.room[c.provider]
            if pair[0] != pair[1]:
                count.setdefault(pair, set()).add(c.symbol)
        return {pair: len(symbols) for pair, symbols in sorted(count.items())}


def components(below):
    """The strongly connected groups of more than one file (Tarjan)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in below[node]:
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            group = stack[at:]
            del stack[at:]
            if len(group) > 1:
                found.append(sorted(group))

    for node in below:
        if node not in index:
            visit(node)
    return found


def path_around(group, below):
    """A shortest way from the first of the group back to it, inside it."""
    start = group[0]
    paths = [[start]]
    seen = set()
    for path in paths:
        for other in below[path[-1]]:
            if other == start:
                return path
            if other in group and other not in seen:
                seen.add(other)
                paths.append(path + [other])
    raise AssertionError(f'{group} is not a circle')


def nm(obj):
    """(defined, needed) symbols of an object that others can see."""
    run = subprocess.run(['nm', '--format=posix', obj],
                         capture_output=True, text=True)
    if run.returncode:
        raise Failure(f'nm cannot read {obj} ({run.stderr.strip()}); build '
                      'QEMU again with ./test or scripts/build-qemu')
    defined, needed = set(), set()
    for line in run.stdout.splitlines():
        name, kind = line.split()[:2]
        if kind in 'Uvw':
            needed.add(name)
        elif kind.isupper() or kind in 'iu':
            defined.add(name)
    return defined, needed


def built_objects(build, source, root):
    """{our source file: its object} as QEMU's build folder has them."""
    try:
        commands = json.loads((build / 'compile_commands.json').read_text())
    except (OSError, ValueError) as e:
        raise Failure(f'{build} holds no build of QEMU ({e}); run ./test or '
                      'scripts/build-qemu first')
    objects = {}
    for command in commands:
        folder = Path(command['directory'])
        file = Path(folder, command['file'])
        try:
            name = str(Path(*file.parent.resolve().parts, file.name)
                       .relative_to(source.resolve()))
        except ValueError:
            continue
        obj = folder / command['output']
        if any(fnmatch(name, p) for p in OURS) and (root / name).is_file() \
                and (obj.exists() or not fnmatch(name, STUBS)):
            objects[name] = obj
    for top in OURS:
        for path in sorted(root.glob(f'{top[:-2]}/**/*.c')):
            name = str(path.relative_to(root))
            if name not in objects and not fnmatch(name, STUBS):
                raise Failure(f'{name} is not built; add it to meson.build')
    return objects


def read_house(objects, floors=FLOORS):
    """The House of {file: object}."""
    seen = {file: nm(obj) for file, obj in objects.items()}
    home = {}
    for file, (defined, _) in seen.items():
        for symbol in defined:
            if symbol in home:
                raise Failure(f'{file} and {home[symbol]} both define '
                              f'{symbol}; rename one, or make it static')
            home[symbol] = file
    calls = {Call(file, home[symbol], symbol)
             for file, (_, needed) in seen.items()
             for symbol in needed if home.get(symbol, file) != file}
    return House(seen, calls, floors)


def upward_includes(name, text, root, floors=FLOORS):
    """Headers of ours that a file includes from a room that is not below."""
    user = find_room(name, floors)
    for header in re.findall(r'^\s*#\s*include\s*["<]([^">]+)[">]', text,
                             re.M):
        header = os.path.normpath(header)
        beside = os.path.normpath(Path(name).parent / header)
        file = header if (root / header).is_file() else beside
        provider = find_room(file, floors)
        if user and provider and (root / file).is_file() and \
                goes_up(user, provider):
            yield file


def function_lengths(text):
    """(lines, name) of each function, from its first line to its last."""
    lines = text.split('\n')
    at = 0
    while at < len(lines):
        head = re.match(r'(?!typedef|static const)[A-Za-z_].*?(\w+)\(',
                        lines[at])
        end = at
        while head and end < len(lines) - 1 and lines[end] != '{' and \
                re.match(r'\s|{$', lines[end + 1]):
            end += 1
        if not head or lines[end] != '{':
            at += 1
            continue
        while lines[end] != '}':
            end += 1
        yield end - at + 1, head[1]
        at = end + 1


# --- the map -----------------------------------------------------------------

def reach(pairs):
    """{room: all rooms that it leads to by two calls or more}"""
    below = {}
    for user, provider in pairs:
        below.setdefault(user, set()).add(provider)
    far = {}
    for room, near in below.items():
        far[room] = set()
        todo = list(near)
        while todo:
            new = below.get(todo.pop(), set()) - far[room]
            far[room] |= new
            todo += new
    return far


def label(house, room):
    files = [Path(f).stem for f in house.files if house.room[f] == room]
    rows = [files[i:i + 3] for i in range(0, len(files), 3)]
    text = '<br/>'.join(', '.join(row) for row in rows)
    return (f'<<table border="0" cellspacing="0"><tr><td><b>{room}</b></td>'
            f'</tr><tr><td><font point-size="10">{text}</font></td></tr>'
            '</table>>')


def dot(house, floors=FLOORS):
    """The map in graphviz's language: rooms, and which calls which.

    A call that a room could also make by way of others is drawn in grey.
    """
    pairs = house.room_calls()
    far = reach(pairs)
    out = ['digraph house {', 'graph [ranksep=0.3, nodesep=0.4];',
           'node [shape=box, fontname="sans-serif", fontsize=12];',
           'edge [fontname="sans-serif", fontsize=9, arrowsize=0.7];']
    above = []
    for rooms in floors:
        there = [r for r in rooms if r in house.room.values()]
        out += [f'"{room}" [label={label(house, room)}];' for room in there]
        out.append('{rank=same; %s}' % ' '.join(f'"{r}";' for r in there))
        out += [f'"{a}" -> "{b}" [style=invis, weight=9];'
                for a in above for b in there]
        above = there or above
    for (user, provider), count in pairs.items():
        style = ('color=gray75' if provider in far[user]
                 else f'label=" {count}"')
        out.append(f'"{user}" -> "{provider}" [{style}, constraint=false];')
    return '\n'.join(out + ['}', ''])


def draw(house, floors=FLOORS):
    """The map as SVG."""
    try:
        run = subprocess.run(['dot', '-Tsvg'], input=dot(house, floors),
                             capture_output=True, text=True)
    except FileNotFoundError:
        raise Failure("graphviz's dot is missing; run scripts/bootstrap, or "
                      'apt-get install graphviz')
    if run.returncode:
        raise Failure(f'dot cannot draw the map ({run.stderr.strip()})')
    # drop the version of the program, which changes
    svg = re.sub(r'<!-- Generated by.*?-->\n?', '', run.stdout, flags=re.S)
    mark = f'<!-- {dumps(house)} -->\n'
    return svg.replace('<svg', mark + '<svg', 1)


def dumps(house):
    """The content of a map in a line of text, to be compared."""
    rooms = {}
    for file in house.files:
        rooms.setdefault(house.room[file], []).append(Path(file).stem)
    calls = [f'{user}>{provider}:{count}'
             for (user, provider), count in house.room_calls().items()]
    return '; '.join([f'{room}: {" ".join(files)}'
                      for room, files in rooms.items()] + calls)
