# SPDX-License-Identifier: GPL-2.0-or-later
"""Templates and rewind=on in any order, with other directories meanwhile."""

# Takes: 15 s

import random
from collections import Counter
from pathlib import Path

from lib.content import assert_same_ram
from lib.effort import rounds
from lib.guests import PAGE, Ring3
from lib.machine import MIB
from lib.templates import RAM_SIZE, REWIND, START, boot, files

STEPS, MOST = rounds(120, 50), 120
TAGS = ('a', 'b', 'c')


class Fickle:
    """Guests that come and go, their snapshots, and templates that get lost"""

    def __init__(self, workdir: Path, templates: Path, accel: str,
                 rng: random.Random):
        self._workdir, self._templates = workdir, templates
        self._accel, self._rng = accel, rng
        self._saved: dict[str, bytes] = {}
        self._last = ''
        self.counts: Counter = Counter()
        self.guest = self._boot()

    def _boot(self, **kwargs) -> Ring3:
        memory = self._rng.choice(('private', 'private', 'shared'))
        strategy = self._rng.choice(('memset', 'madvise', 'remap', 'auto'))
        options = self._rng.choice(REWIND)
        return boot(self._workdir, self._templates, self._accel,
                    strategy=strategy, memory=memory,
                    options=f'{options},verify=on', **kwargs)

    def step(self) -> None:
        kinds = {self.write: 30, self.save: 10, self.load: 30,
                 self.restart: 14, self.lose: 4, self.damage: 4,
                 self.delete: 2}
        kind, = self._rng.choices(list(kinds), list(kinds.values()))
        self.counts[kind.__name__] += 1
        kind()

    def write(self) -> None:
        at = START + self._rng.randrange(0, 14 * MIB, PAGE)
        pages = self._rng.choice((1, 3, 50, 400))
        pages = min(pages, (RAM_SIZE - at) // PAGE)
        word = self._rng.choice(('fill', 'set'))
        value = self._rng.randrange(1, 99) if word == 'fill' else 0
        self.guest.ask(word, at, pages * PAGE, value)

    def save(self) -> None:
        tag = self._rng.choice(TAGS)
        self.guest.sync()
        self.guest.stop()
        self._saved[tag] = self.guest.ram_image()
        self.guest.save(tag)
        assert_same_ram(self.guest.ram_image(), self._saved[tag])
        self.guest.cont()

    def _tag(self) -> str:
        if self._last in self._saved and self._rng.randrange(2):
            return self._last
        self._last = self._rng.choice(sorted(self._saved)) if self._saved else ''
        return self._last

    def load(self) -> None:
        tag = self._tag()
        if tag:
            self.guest.stop()
            self.guest.load(tag, self._rng.choice(('hmp', 'qmp')))
            self._check(tag)

    def _check(self, tag: str) -> None:
        assert_same_ram(self.guest.ram_image(), self._saved[tag])
        self.counts['from templates'] += 'template' in self.guest.last_load()
        self.counts['rewound'] += self.guest.last_load()['rewound']
        self.guest.cont()
        self.guest.sync()

    def restart(self) -> None:
        tag = self._tag()
        self.guest.close()
        if tag:
            self.guest = self._boot(loadvm=tag, args=('-S',))
            self._check(tag)
        else:
            self.guest = self._boot()

    def lose(self) -> None:
        for file in files(self._templates):
            if self._rng.randrange(2):
                file.unlink()

    def damage(self) -> None:
        """By another one's content, for each a different one."""
        found = files(self._templates)
        if found:
            victim = self._rng.choice(found)
            other = self._rng.choice(found).read_bytes()
            # those who have it mapped must not see that
            victim.unlink()
            victim.write_bytes(other[:self._rng.choice((100, len(other)))])
            victim.chmod(0o600)

    def is_fair(self) -> bool:
        """It has tried enough of both ways to load."""
        return self.counts['from templates'] >= STEPS // 20 and \
            self.counts['rewound'] > 0

    def delete(self) -> None:
        tag = self._tag()
        if tag:
            self.guest.hmp(f'delvm {tag}')
            del self._saved[tag]


def test_random_sequence(tmp_path, templates, accel, rng):
    """RAM is always that of the snapshot, wherever it has come from."""
    play = Fickle(tmp_path, templates, accel, rng)
    try:
        # a short one goes on until it has loaded in both ways
        for step in range(MOST):
            if step >= STEPS and play.is_fair():
                break
            play.step()
    finally:
        play.guest.close()
    assert play.is_fair(), play.counts
