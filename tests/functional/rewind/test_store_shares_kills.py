# SPDX-License-Identifier: GPL-2.0-or-later
"""A job that shares clusters, killed at each write."""

# Takes: 10 s

import shutil

from lib import products
from lib.effort import rounds
from lib.kills import Kills
from lib.sharing import Sharer, load_all
from lib.storing import check, killed_while_storing

STEP = rounds(1, 2)


def test_kill_at_every_write(tmp_path, monkeypatch):
    """Only leaks are left, and both snapshots are right."""
    kills = Kills(tmp_path, monkeypatch)
    whole = {False: 0, True: 0}
    ended = True
    nth = 1 - STEP
    while ended:
        nth += STEP
        folder = tmp_path / str(nth)
        folder.mkdir()
        guest = Sharer(folder)
        guest.put(500, 200, 30)
        guest.put(3000, 200, 30)
        guest.remember('s')
        disk, images = guest.disk, guest.images
        ended, stored = killed_while_storing(guest, 's', kills, nth)
        whole[stored] += 1
        if not stored:
            del images['s']
        load_all(folder, images, products.QEMU)
        check(disk)
        shutil.rmtree(folder)
    assert whole[True] and whole[False] > 5
