# SPDX-License-Identifier: GPL-2.0-or-later
"""scripts/package-root: what root builds for a user is the user's after."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from lib.products import REPO

SCRIPTS = 'common.py', 'debian.py', 'package-root'
USER = 65534
# Instead of a build in a root, with what that leaves behind
UNSHARE = '''#!/bin/sh
mkdir -p {out}/source/b/qemu {out}/venv/bin {ccache}/0
touch {out}/source/b/qemu/build.ninja {out}/build.log {ccache}/0/object
ln -s /etc/passwd {out}/source/b/link
exit {status}
'''


def users(path: Path) -> None:
    path.mkdir(parents=True, exist_ok=True)
    os.chown(path, USER, USER)


@pytest.mark.skipif(os.geteuid() != 0, reason='only root can give files away')
@pytest.mark.parametrize('status', (0, 1))
@pytest.mark.parametrize('there', (True, False))
def test_nothing_is_left_to_root(tmp_path, status, there):
    clone, home = tmp_path / 'clone', tmp_path / 'home'
    out, ccache = clone / 'build/package/12', home / '.cache/ccache'
    for folder in (clone, home, out, *([ccache] if there else [])):
        users(folder)
    (clone / 'scripts').mkdir()
    for name in SCRIPTS:
        shutil.copy(REPO / 'scripts' / name, clone / 'scripts' / name)
    (out / 'root').mkdir()
    fake = tmp_path / 'bin/unshare'
    fake.parent.mkdir()
    fake.write_text(UNSHARE.format(out=out, ccache=ccache, status=status))
    fake.chmod(0o755)
    passwd = Path('/etc/passwd').stat().st_uid
    run = subprocess.run(
        [clone / 'scripts/package-root', 'build', '12'], check=False,
        env=os.environ | {'PATH': f'{fake.parent}:{os.environ["PATH"]}',
                          'CCACHE_DIR': str(ccache)})
    assert run.returncode == status
    made = [*(out / 'source').rglob('*'), *(out / 'venv').rglob('*'),
            out / 'source', out / 'build.log', *(home / '.cache').rglob('*')]
    assert len(made) > 8
    assert {path: path.lstat().st_uid for path in made} == \
        dict.fromkeys(made, USER)
    # a root is root's, or dpkg would not install into it
    assert (out / 'root').stat().st_uid == 0
    assert Path('/etc/passwd').stat().st_uid == passwd
