# SPDX-License-Identifier: GPL-2.0-or-later
"""The hooks: small, fuzz-free on QEMU 10.0 and 10.2, and nothing but hooks."""

import re
import tarfile

import pytest

from common import (BUILD, Failure, HOOK_LIMIT, QEMU_SRC, STOCK_SRC,
                    apply_series, overlay_files, remove, series)
from debian import Apt


def offered(minor):
    """(apt, version) of Debian's newest QEMU of that series."""
    problems = []
    for suite in ('trixie-backports', 'forky', 'sid'):
        apt = Apt(f'source-{suite}', 'deb-src', [suite], security=False)
        try:
            text = apt.query('apt-cache', 'showsrc', 'qemu')
        except Failure as e:
            problems.append(str(e))
            continue
        versions = re.findall(rf'^Version: (\S*\b{re.escape(minor)}\.\S+)',
                              text, re.M)
        if versions:
            return apt, versions[-1]
    pytest.skip(problems[0] if problems else
                f'Debian no longer offers QEMU {minor}')


def unpack(tarball, names, target):
    """Unpack the named files; yield the names of all."""
    with tarfile.open(tarball) as tar:
        for member in tar:
            name = member.name.partition('/')[2]
            if not member.isfile() or not name:
                continue
            path = target / name
            if name in names:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(tar.extractfile(member).read())
            yield name


@pytest.fixture(scope='module')
def qemu_10_2():
    """(tree of the files that the patches name, names of all its files)"""
    cache = BUILD / 'apt' / 'qemu-10.2'
    names = {f for p in series() for f in p.files} | {'VERSION'}
    listing = cache / 'files'
    try:
        if not list(cache.glob('*.orig.tar.*')):
            partial = cache.with_name('qemu-10.2.partial')
            remove(partial)
            apt, version = offered('10.2')
            apt.fetch('source', '--download-only', f'qemu={version}',
                      into=partial)
            remove(cache)
            partial.rename(cache)
    except Failure as e:
        pytest.skip(str(e))
    tree = cache / 'tree'
    if not listing.exists() or any(not (tree / n).exists() for n in names):
        remove(tree)
        tarball = next(p for p in cache.glob('qemu_*.orig.tar.*')
                       if p.suffix != '.asc')
        listing.write_text('\n'.join(unpack(tarball, names, tree)) + '\n')
    return tree, set(listing.read_text().split('\n'))


def test_series_is_not_empty():
    assert series()


def test_hooks_stay_small():
    added = sum(p.added for p in series())
    assert added <= HOOK_LIMIT


@pytest.mark.parametrize('patch', series(), ids=lambda p: p.name)
def test_patch_has_subject_and_reason(patch):
    lines = patch.header.strip().split('\n')
    assert lines[0].startswith('Subject: ')
    assert len(lines) > 2 and not lines[1] and lines[2]
    assert 'TODO' not in patch.header


def test_applies_to_prepared_source_without_fuzz(tmp_path):
    apply_series(series(), STOCK_SRC, tmp_path)


def test_built_tree_holds_the_series(tmp_path):
    patched = apply_series(series(), STOCK_SRC, tmp_path)
    edited = [n for n, data in patched.items()
              if (QEMU_SRC / n).read_bytes() != data]
    assert not edited, 'run scripts/refresh-patches'


def test_applies_to_10_2_without_fuzz(qemu_10_2, tmp_path):
    tree, _ = qemu_10_2
    assert (tree / 'VERSION').read_text().startswith('10.2.')
    apply_series(series(), tree, tmp_path)


def test_overlay_files_are_new():
    assert not [n for n in overlay_files() if (STOCK_SRC / n).exists()]


def test_overlay_files_are_new_to_10_2(qemu_10_2):
    _, files = qemu_10_2
    assert len(files) > 1000
    assert not files & set(overlay_files())
