# SPDX-License-Identifier: GPL-2.0-or-later
"""
Damage to the files that ours keeps: templates, and what is known of hugepage
files.  template/file.h and hugefile/record.h say what they promise.
"""

import hashlib
import os
import random
import re
import struct
from pathlib import Path

HEAD = struct.Struct('=QQ32s')

# Whether what the file promises holds; otherwise somebody who may do anything
# to it has told lies that fit
RECORDS = {
    'noise': True,
    'cut short': True,
    'longer': True,
    'another boot': True,
    'another file': True,
    'another time': True,
    'in use': True,
    'for all': True,
    'noise, with its checksum': False,
}
TEMPLATES = {
    'head': True,
    'index': True,
    'head, in the same second': True,
    'index, in the same second': True,
    'cut short': True,
    'longer': True,
    'another time': True,
    'content': True,
    'empty': True,
    'for all': True,
    'a link': True,
    'gone': True,
    'content, in the same second': False,
    'index with its checksum': False,
    'numbers of the index with its checksum': False,
}


def _put(file: Path, at: int, data: bytes) -> None:
    with open(file, 'r+b') as f:
        f.seek(at)
        f.write(data)


def _noise(rng: random.Random, data: bytes, start: int, end: int) -> bytes:
    at = rng.randrange(start, end)
    new = rng.choice((rng.randbytes(rng.choice((1, 8, 32))), b'\xff' * 8,
                      bytes(8), bytes((data[at] ^ 1 << rng.randrange(8),))))
    return (data[:at] + new + data[at + len(new):])[:end]


def _number(rng: random.Random, index: bytes) -> bytes:
    """Change the note, sizes and time behind the identity, or blocks."""
    first = index.index(0) // 8 + 1
    last = len(index) // 8 if rng.random() < 0.5 else first + 4
    at = rng.randrange(first, last) * 8
    old, = struct.unpack_from('=Q', index, at)
    new = rng.choice((0, 1, -1, old + 1, old - 1, old * 2, old ^ 1 << 63, 4096,
                      old + 4096, old - 4096, (1 << 63) - 1, old + (2 << 20)))
    return index[:at] + struct.pack('=Q', new % (1 << 64)) + index[at + 8:]


def _damage_index(kind: str, file: Path, rng: random.Random) -> None:
    with open(file, 'rb') as f:
        magic, size, _ = HEAD.unpack(f.read(HEAD.size))
        index = f.read(size)
    index = _number(rng, index) if kind.startswith('numbers') else \
        _noise(rng, index, 0, size)
    checksum = hashlib.sha256(index).digest()
    _put(file, 0, HEAD.pack(magic, size, checksum) + index)


def damage_template(kind: str, file: Path, rng: random.Random) -> str:
    """Returns: the damage that was done to @file."""
    stat = file.stat()
    with open(file, 'rb') as f:
        head = f.read(HEAD.size)
        index = HEAD.unpack(head)[1]
        data = head + f.read(index)
    what = kind.split(',')[0]
    if what == 'head':
        _put(file, 0, _noise(rng, data, 0, HEAD.size))
    elif what == 'index':
        _put(file, 0, _noise(rng, data, HEAD.size, HEAD.size + index))
    elif what in ('cut short', 'longer'):
        size = rng.randrange(stat.st_size) if what == 'cut short' else \
            stat.st_size + rng.choice((1, 4096, 2 << 20))
        os.truncate(file, size)
    elif what == 'another time':
        os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns +
                           rng.choice((1, -1, 10**9, -10**9, 10**17))))
        return kind
    elif what == 'content':
        with open(file, 'rb') as f:
            at = os.lseek(f.fileno(), rng.randrange(2 << 20, 16 << 20),
                          os.SEEK_DATA)
        _put(file, at, b'overwritten')
    elif what == 'empty':
        os.truncate(file, 0)
    elif what == 'for all':
        file.chmod(0o644)
    elif what == 'a link':
        other = file.with_name('other')
        file.rename(other)
        file.symlink_to(other)
        return kind
    elif what == 'gone':
        file.unlink()
        return kind
    else:
        _damage_index(kind, file, rng)
    if 'same second' in kind or 'checksum' in kind or rng.random() < 0.5:
        if what != 'content' or 'same second' in kind:
            os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    return kind


def _with_checksum(body: bytes) -> bytes:
    return body + b'sha256=' + hashlib.sha256(body).hexdigest().encode() + b'\n'


def damage_record(kind: str, file: Path, rng: random.Random) -> None:
    data = file.read_bytes()
    body = data[:data.index(b'sha256=')]
    if kind == 'noise':
        data = _noise(rng, data, 0, len(data))
    elif kind == 'cut short':
        data = data[:rng.randrange(len(data))]
    elif kind == 'longer':
        data += rng.randbytes(rng.choice((1, 100, 5000)))
    elif kind == 'noise, with its checksum':
        data = _with_checksum(_noise(rng, body, 0, len(body)))
    else:
        line = {'another boot': rb'boot-id=.', 'another file': rb'inode=.',
                'another time': rb'access-time=.', 'in use': b'in-use=false',
                'for all': b'never'}[kind]
        new = b'in-use=true' if kind == 'in use' else \
            line.replace(b'.', b'').replace(b'\\', b'') + b'3'
        data = _with_checksum(re.sub(line, new, body))
    file.write_bytes(data)
    file.chmod(0o644 if kind == 'for all' else 0o600)
