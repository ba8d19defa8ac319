# SPDX-License-Identifier: GPL-2.0-or-later
"""Damaged snapshots by the thousand, each loaded by ours and by stock."""

import mmap
import random
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lib import products
from lib.hugefile import write_record
from lib.machine import MIB, PAGE, RAM, MachineError
from lib.mutations.files import (RECORDS, TEMPLATES, damage_record,
                                 damage_template)
from lib.mutations.stream import STREAM_KINDS, Image
from lib.mutations.subjects import (BAD, GOOD, RAM_SIZE, HugeSubject, Job,
                                    Outcome, Subject, content, make_base)
from lib.mutations.verdict import Judge, Result

# How often of each kind, and of what else may be different: in 100
WEIGHTS = {'bytes': 23, 'lengths': 17, 'records': 14, 'sections': 13,
           'truncation': 7, 'qcow2': 18, 'template': 6, 'hugepage record': 2}
AT_START = 4
MAX_TEMPLATES = 50
IN_FILES = ',template-dir={templates},template-limit=64M'

CONFIGS: dict[str, dict] = {
    'memset': {'strategy': 'memset'},
    'memset, shared': {'strategy': 'memset', 'memory': 'shared'},
    'madvise': {'strategy': 'madvise'},
    'madvise, shared': {'strategy': 'madvise', 'memory': 'shared'},
    'remap': {'strategy': 'remap'},
    'remap, shared': {'strategy': 'remap', 'memory': 'shared'},
    'auto': {'strategy': 'auto'},
    'rewind': {'strategy': 'auto', 'options': ',rewind=on'},
    'rewind, shared': {'strategy': 'memset', 'memory': 'shared',
                       'options': ',rewind=on'},
    'template': {'strategy': 'memset', 'options': IN_FILES},
    'template, shared': {'strategy': 'madvise', 'memory': 'shared',
                         'options': IN_FILES},
    'template, rewind': {'strategy': 'auto',
                         'options': ',rewind=on' + IN_FILES},
    'verify': {'strategy': 'auto', 'options': ',verify=on,rewind=on'},
    'verify, template': {'strategy': 'memset',
                         'options': ',verify=on' + IN_FILES},
    'hugefile': {'strategy': 'hugefile', 'options': ',unlink=never'},
}

class Sweep:
    """
    A context with all the QEMUs that it takes, made when they are needed.
    @huge: a folder on hugetlbfs, or None.
    """

    def __init__(self, workdir: Path, seed: int, huge: Path | None):
        self._workdir = workdir
        self._huge = huge
        self._templates = workdir / 'templates'
        self._templates.mkdir(mode=0o700)
        self.seed = seed
        self._bases = []
        for size in ('64k', '4k'):
            folder = workdir / f'base-{size}'
            folder.mkdir()
            self._bases.append(Image(make_base(folder, size), BAD))
        self.image = self._bases[0]     # in order
        self._good_image = workdir / 'good.qcow2'
        self._good_image.write_bytes(self.image.data)
        self._subjects: dict[str, Subject] = {}
        self._pool = ThreadPoolExecutor(2)
        stock = self._subject('stock')
        ram = {}
        for tag in (BAD, GOOD):
            stock.load(tag)
            ram[tag] = stock.all_ram()
            assert ram[tag][RAM] == content(tag)
        self._bad, self._good = ram[BAD], ram[GOOD]
        self._judge = Judge(self._good, self._bad)

    def __enter__(self) -> 'Sweep':
        return self

    def __exit__(self, *unused) -> None:
        self._pool.shutdown()
        for subject in self._subjects.values():
            subject.close()

    def configs(self) -> list[str]:
        return [name for name in CONFIGS if self._huge or name != 'hugefile']

    def _make(self, config: str, folder: Path, **kwargs) -> Subject:
        if config == 'stock':
            return Subject(folder, qemu=products.stock(), **kwargs)
        setup = dict(CONFIGS[config])
        setup['options'] = setup.get('options', '').format(
            templates=self._templates)
        if config != 'hugefile':
            return Subject(folder, **setup, **kwargs)
        return HugeSubject(folder, self._huge / folder.name, ram=RAM_SIZE,
                           **setup, **kwargs)

    def _subject(self, config: str) -> Subject:
        """As it was left by the last load, if it lives."""
        subject = self._subjects.get(config)
        if subject and subject.process.poll() is not None:
            subject.close()
            subject = None
        if not subject:
            folder = self._workdir / config.replace(', ', '-')
            shutil.rmtree(folder, ignore_errors=True)
            subject = self._make(config, folder, good=self._good_image)
            self._subjects[config] = subject
            subject.load(GOOD, 'qmp')
        return subject

    # One mutation

    def run(self, number: int) -> Result:
        rng = random.Random(f'{self.seed}:{number}')
        kind, = rng.choices(tuple(WEIGHTS), tuple(WEIGHTS.values()))
        config = rng.choice(self.configs())
        self._make_room()
        if kind == 'template':
            return self._run_template(number, rng)
        if kind == 'hugepage record' and self._huge:
            return self._run_record(number, rng)
        base = rng.choice(self._bases)
        fresh = base.with_date(number)
        if kind not in STREAM_KINDS:
            kind = 'qcow2'
            image, what = base.qcow2(rng, fresh)
        else:
            stream, what = STREAM_KINDS[kind](base.mutator, rng)
            image = base.with_stream(stream, fresh)
        result = Result(number, kind, config, what, Outcome(''), Outcome(''))
        job = None
        if rng.randrange(100) < AT_START:
            result.what += ', with -loadvm'
        else:
            job = self._job(number, rng, kind, image, fresh)
            result.what += (f' (by {job.by}, {"" if job.stopped else "not "}'
                            f'stopped{", loaded before" * bool(job.before)}'
                            f'{", good one too" * job.same_image})')
        self._load(result, job, image)
        return result

    def load_image(self, config: str, image: bytes) -> Result:
        """By the monitor."""
        result = Result(0, 'an image', config, '', Outcome(''), Outcome(''))
        self._load(result, Job(0, image, ((MIB, MIB, 1),)), image)
        return result

    def _load(self, result: Result, job: Job | None, image: bytes) -> None:
        """Load by ours and stock at the same time; @job: None for -loadvm."""
        def load(config: str) -> Outcome:
            return self._play(config, job) if job else \
                self._start(config, image)

        for _ in range(2):
            result.ours, result.stock = self._pool.map(
                load, (result.config, 'stock'))
            # the host may have been busy
            if (result.ours.how == 'hang') == (result.stock.how == 'hang'):
                break
        self._judge(result, job)

    def _job(self, number: int, rng: random.Random, kind: str, image: bytes,
             fresh: bytes) -> Job:
        stale = tuple((rng.randrange(256, RAM_SIZE // PAGE) * PAGE, PAGE,
                       rng.randrange(1, 256)) for _ in range(20))
        if rng.random() < 0.5:
            stale = ((MIB, RAM_SIZE - MIB, rng.randrange(1, 256)),)
        in_stream = kind != 'qcow2'
        again = in_stream and len(image) == len(fresh) and rng.random() < 0.25
        return Job(number, image, stale, before=fresh if again else b'',
                   stopped=rng.random() < 0.5, by=rng.choice(('hmp', 'qmp')),
                   same_image=in_stream and rng.random() < 0.4)

    def _play(self, config: str, job: Job) -> Outcome:
        return self._subject(config).play(job, self._good)

    def _start(self, config: str, image: bytes) -> Outcome:
        """A new QEMU that is to load it at once."""
        folder = self._workdir / f'start-{config.replace(", ", "-")}'
        folder.mkdir()
        (folder / 'disk.qcow2').write_bytes(image)
        outcome = Outcome('loaded')
        try:
            with self._make(config, folder, loadvm=BAD, args=('-S',)) as guest:
                outcome.ram = guest.all_ram()
                if guest.status() == 'running':
                    outcome.findings.append('runs in spite of -S')
        except MachineError as e:
            self._end_of(outcome, e)
        finally:
            shutil.rmtree(folder)
            if self._huge:
                (self._huge / folder.name).unlink(missing_ok=True)
        return outcome

    def _run_template(self, number: int, rng: random.Random) -> Result:
        """The snapshot is in order, and what stock makes of it is known."""
        config = rng.choice([name for name in self.configs()
                             if name.endswith('template') or
                             name == 'template, shared'])
        kind = rng.choice(tuple(TEMPLATES))
        image = rng.choice(self._bases).with_date(number)
        what = []

        def damage() -> None:
            what.append(damage_template(kind, self._template_of(number), rng))

        job = self._job(number, rng, 'template', image, b'')
        job.by, job.same_image, job.elsewhere = 'qmp', False, damage
        ours = self._play(config, job)
        result = Result(number, 'template', config, ' '.join(what), ours,
                        Outcome('loaded', ram=self._bad))
        if TEMPLATES[kind] or (ours.how == 'loaded' and ours.ram == self._bad):
            self._judge(result, job)
        else:
            result.findings = list(ours.findings)
            result.verdict = 'beyond what a template promises'
            if ours.how in ('crash', 'hang'):
                result.findings.append(f'{ours.how} of ours alone')
            elif ours.how == 'loaded' and 'verify' in config:
                result.findings.append('verify=on does not see other RAM')
        return result

    def _template_of(self, number: int) -> Path:
        """The date is what tells our snapshots from each other."""
        for file in filter(Path.is_file, self._templates.iterdir()):
            with open(file, 'rb') as f:
                if f"'{BAD}' of ".encode() in (head := f.read(PAGE)) and \
                        f'.{number:09},'.encode() in head:
                    return file
        raise MachineError(f'no template of snapshot {number}')

    def _make_room(self) -> None:
        """For templates: those of a running QEMU's loads stay otherwise."""
        files = list(self._templates.iterdir())
        if len(files) > MAX_TEMPLATES:
            for file in files:
                file.unlink()

    def _run_record(self, number: int, rng: random.Random) -> Result:
        """
        A file with an old guest's bytes: a new one does not see them, whatever
        the record says, nor does a load.
        """
        kind = rng.choice(tuple(RECORDS))
        folder = self._workdir / 'record'
        folder.mkdir()
        shutil.copy(self._good_image, folder / 'disk.qcow2')
        path, state = self._huge / 'record', folder / 'state'
        with open(path, 'w+b') as f:
            f.truncate(RAM_SIZE)
            with mmap.mmap(f.fileno(), RAM_SIZE) as ram:
                ram[:] = b'\xa7' * RAM_SIZE
        path.chmod(0o600)
        write_record(state, path)       # clean, which is a lie
        damage_record(kind, state, rng)
        result = Result(number, 'hugepage record', 'hugefile', kind,
                        Outcome('loaded'), Outcome('loaded', ram=self._good),
                        'same')
        try:
            self._use_record(result, HugeSubject(
                folder, path, ram=RAM_SIZE, options=',unlink=never',
                state=state, args=('-S',)))
        except MachineError as e:
            self._end_of(result.ours, e)
        if result.ours.how in ('crash', 'hang'):
            result.findings.append(f'{result.ours.how} of ours alone')
        elif result.ours.how == 'failed':
            result.verdict = 'does not start with such a file'
        if not RECORDS[kind] and result.ours.findings:
            result.verdict = 'beyond what a record promises'
        else:
            result.findings += result.ours.findings
        shutil.rmtree(folder)
        path.unlink(missing_ok=True)
        return result

    def _use_record(self, result: Result, guest: HugeSubject) -> None:
        with guest:
            if any(guest.all_ram()[RAM]):
                result.ours.findings.append("an old guest's bytes at start")
            guest.load(GOOD, 'qmp')
            if guest.all_ram() != self._good:
                result.ours.findings.append('RAM is not the good snapshot\'s')

    @staticmethod
    def _end_of(outcome: Outcome, error: MachineError) -> None:
        """Judge a QEMU that has not come to answer."""
        outcome.message = str(error)
        status = re.search(r'ends with status (-?\d+)', str(error))
        outcome.how = 'hang' if not status else \
            'failed' if status.group(1) == '1' else 'crash'
