# SPDX-License-Identifier: GPL-2.0-or-later
"""virsh restore, and start after managedsave: QEMU loads a file of libvirt's."""

# Takes: 90 s

import contextlib
import dataclasses
import itertools
import os
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

from lib import products, sandbox
from lib.content import check_state, dirty, write_state
from lib.domains import OBJECTS, TAG, Config, Domain, assert_runs, saved
from lib.guests import LinuxWords
from lib.libvirtd import (USER, USER_ID, Libvirtd, LibvirtError,
                          Unavailable)
from lib.machine import MIB

CONFIG = Config(objects=OBJECTS['rewind'])
LATER = 'later'
# How RAM comes out of a file that is restored again and again
PIPE, FILE, TEMPLATE = 'read from a pipe', 'mapped', 'mapped from a template'
PROGRAMS = ('gzip', 'bzip2', 'xz', 'lzop', 'zstd')
FORMATS = {'raw': TEMPLATE, 'sparse': FILE, **dict.fromkeys(PROGRAMS, PIPE)}
SLOW = ('bzip2', 'xz')
# Those that 9.0 does not know
NEWER = ('sparse', 'zstd')
# Options of save and of restore
SPARSE = '--image-format sparse'
OPTIONS = (
    ('9.0', '--bypass-cache', '--bypass-cache', PIPE),
    ('9.0', '', '--bypass-cache', PIPE),
    ('11.3', '--bypass-cache', '', TEMPLATE),
    ('11.3', f'{SPARSE} --bypass-cache', '--bypass-cache', FILE),
    ('11.3', f'{SPARSE} --parallel-channels 2', '--parallel-channels 2', FILE))
# Both ways to bring RAM: in a stream, and in pages of a file
BOTH = pytest.mark.parametrize('daemon, options', (
    ('9.0', ''), ('11.3', SPARSE)), indirect=('daemon',))


def is_new(daemon: Libvirtd) -> bool:
    return '11.3' in daemon.root.name


def assert_loaded(guest: Domain, how: str, again: bool) -> None:
    """@again: QEMU has loaded the file before."""
    incoming = guest.qmp('query-ram-reset')['incoming']
    assert ('file' in incoming) == (how != PIPE)
    assert ('template' in incoming) == (how == TEMPLATE and again)
    assert incoming['mapped'] == (how == FILE or how == TEMPLATE and again)
    if how == PIPE:
        assert 'pipe' in incoming['reason']
    if incoming['mapped']:
        block, = (b for b in incoming['blocks'] if b['name'] == 'pc.ram')
        assert block['mapped-pages'] > 0


def assert_snapshots_work(guest: Domain) -> None:
    """An old one, and a new one that rewinds."""
    dirty(guest, 3)
    guest.load_by_hmp(TAG)
    check_state(guest)
    assert guest.hmp(f'savevm {LATER}') == ''
    for seed in 4, 5:
        dirty(guest, seed)
        guest.load_by_hmp(LATER)
        check_state(guest)
    info = guest.qmp('query-ram-reset')
    assert info['last-load']['rewound'] == info['objects'][0]['rewind']
    assert (info['failed-loads'], info['fallbacks']) == (0, 0)


def restore(guest: Domain, options: str = '') -> None:
    guest.restore(options)
    guest.sync()
    assert_runs(guest)


def restore_often(guest: Domain, how: str, options: str = '') -> None:
    whole = guest.file.read_bytes()
    for again in (False, True)[:1 if how == PIPE else 2]:
        restore(guest, options)
        assert_loaded(guest, how, again)
        guest.destroy()
    assert guest.file.read_bytes() == whole


@pytest.mark.each_value
def test_restore_brings_memory_back(guest):
    guest.save_file()
    assert guest.state() == 'shut off'
    for _ in range(2):
        restore(guest)
        assert_snapshots_work(guest)
        guest.destroy()


@pytest.mark.each_value
def test_managed_save_brings_memory_back(plain_guest):
    guest = plain_guest
    for _ in range(2):
        guest.virsh('managedsave')
        assert guest.state() == 'shut off'
        guest.virsh('start')
        guest.connected()
        guest.sync()
        assert_runs(guest)
        assert_snapshots_work(guest)
    # libvirt has removed the file
    guest.destroy()
    guest.start()
    dirty(guest, 6)


@contextlib.contextmanager
def saving_as(daemon: Libvirtd, form: str) -> Iterator[tuple[Libvirtd, str]]:
    """A daemon, and the options of save; 9.0 has a setting alone."""
    if is_new(daemon):
        yield daemon, f'--image-format {form}'
        return
    with Libvirtd(daemon.root.name,
                  settings=f'save_image_format = "{form}"\n') as other:
        yield other, ''


def refusal(daemon: Libvirtd, form: str) -> str:
    """What libvirt says of a format, or nothing."""
    if form in NEWER and not is_new(daemon):
        return 'Invalid save image format'
    if form in PROGRAMS and not shutil.which(form, path=daemon.path):
        return "Compression program for .* isn't available"
    return ''


@pytest.mark.parametrize('form', (
    pytest.param(form, marks=pytest.mark.long('slow programs; gzip is another')
                 if form in SLOW else ()) for form in FORMATS))
def test_format(daemon, form):
    with saving_as(daemon, form) as (libvirtd, options), \
            saved(libvirtd, CONFIG) as guest:
        message = refusal(libvirtd, form)
        if message:
            with pytest.raises(LibvirtError, match=message):
                guest.save_file(options)
            assert_runs(guest)
            return
        guest.save_file(options)
        restore_often(guest, FORMATS[form])


@pytest.mark.parametrize('daemon, first, then, how', OPTIONS,
                         indirect=('daemon',))
def test_options(daemon, first, then, how):
    with saved(daemon, CONFIG) as guest:
        guest.save_file(first)
        restore_often(guest, how, then)


@pytest.mark.long('test_manual.py has a file that belongs to QEMU')
@pytest.mark.skipif(os.geteuid() != 0, reason='it gives files away')
def test_file_of_root_for_a_qemu_that_is_not():
    """libvirt keeps the owner of a file; QEMU must be that to map it."""
    try:
        own = Libvirtd('11.3', USER)
    except Unavailable as e:
        pytest.skip(str(e))
    with own as daemon, Domain(daemon, CONFIG) as guest:
        sandbox.let_all_reach(sandbox.enter(sandbox.child_of(daemon.pid)),
                              products.BUILD)
        daemon.work.chmod(0o711)
        guest.give_to(USER_ID)
        guest.start()
        write_state(guest)
        for owner, how in (0, 'cannot be opened again'), (USER_ID, None):
            guest.file.touch(0o600)
            os.chown(guest.file, owner, owner)
            guest.save_file(SPARSE)
            guest.restore()
            guest.sync()
            check_state(guest)
            assert guest.file.stat().st_uid == owner
            incoming = guest.qmp('query-ram-reset')['incoming']
            assert incoming['mapped'] == (how is None)
            assert (how or '') in incoming.get('reason', '')
            assert 'template' not in incoming


def test_channels_are_for_one_format(daemon):
    message = 'only supported with the .sparse. save image format' \
        if is_new(daemon) else 'command .save. doesn.t support option'
    with saved(daemon, CONFIG) as guest:
        with pytest.raises(LibvirtError, match=message):
            guest.save_file('--parallel-channels 2')
        assert_runs(guest)


@pytest.mark.any_value
def test_disks_of_a_paused_guest_wait_until_it_runs(daemon):
    """QEMU opens them for writing then, and there is no snapshot before."""
    with saved(daemon, CONFIG) as guest:
        guest.save_file()
        guest.restore('--paused')
        assert guest.state() == 'paused'
        assert 'does not support snapshots' in guest.hmp(f'savevm {LATER}')
        guest.virsh('resume')
        guest.sync()
        assert_runs(guest)
        assert_snapshots_work(guest)


@BOTH
def test_saved_to_the_same_file(daemon, options):
    """libvirt truncates it, which QEMU has RAM from."""
    with saved(daemon, CONFIG) as guest:
        for _ in range(2):
            guest.save_file(options)
            guest.restore()
            guest.sync()
            check_state(guest)
        assert_runs(guest)


@BOTH
def test_file_that_is_cut_short_is_refused(daemon, options):
    with saved(daemon, CONFIG) as guest:
        guest.save_file(options)
        os.truncate(guest.file, guest.file.stat().st_size // 2)
        with pytest.raises(LibvirtError, match='ailed to restore|load of migr'):
            guest.restore()
        assert guest.state() == 'shut off'
        guest.revert(TAG)
        assert_runs(guest)


@pytest.mark.each_value
@pytest.mark.parametrize('give', (True, False), ids=('given', 'taken'))
def test_object_of_another_xml(daemon, give):
    """The file has the domain's definition, which restore may replace."""
    config = dataclasses.replace(CONFIG, objects=())
    other = CONFIG if give else config
    with saved(daemon, config if give else CONFIG) as guest:
        guest.save_file()
        text = daemon.virsh('save-image-dumpxml', guest.file).stdout
        path = guest.file.with_suffix('.xml')
        path.write_text(with_objects(text, other, guest.file.parent))
        guest.restore(f'--xml {path}')
        guest.sync()
        check_state(guest)
        assert len(guest.qmp('query-ram-reset')['objects']) == give
        if give:
            assert_snapshots_work(guest)


def with_objects(text: str, config: Config, folder: Path) -> str:
    domain = ET.fromstring(text)
    for command in domain.findall('{*}commandline'):
        domain.remove(command)
    objects = [o.format(folder=folder) for o in config.objects]
    plain = dataclasses.replace(config, objects=objects).xml(
        'any', folder / 'disk', folder / 'serial')
    domain.extend(ET.fromstring(plain).findall('{*}commandline'))
    return ET.tostring(domain, encoding='unicode')


class LinuxConfig(Config):
    def xml(self, name: str, disk: Path, serial: Path) -> str:
        domain = ET.fromstring(super().xml(name, disk, serial))
        system = domain.find('os')
        system.find('kernel').text = str(products.kernel())
        ET.SubElement(system, 'initrd').text = str(products.initramfs())
        ET.SubElement(system, 'cmdline').text = LinuxWords.APPEND
        return ET.tostring(domain, encoding='unicode')


class LinuxDomain(LinuxWords, Domain):
    def __init__(self, daemon: Libvirtd, config: Config):
        super().__init__(daemon, config)
        self._ids = itertools.count(1)

    def start(self) -> None:
        self.virsh('start')
        self.connected()

    def boot(self) -> None:
        self.start()
        self.wait_booted()
        self.run('insmod /lib/virtio_blk.ko')

    def write(self, mib: int) -> str:
        """The checksum of what is in memory and on the disk then."""
        self.prepare_state(mib)
        self.run('dd if=/run/state of=/dev/vda bs=1M oflag=direct 2>/dev/null')
        return self.run('sha256sum </run/state | cut -c1-64')

    def sums(self, mib: int) -> list[str]:
        """Of both; the disk's content comes from the device."""
        return self.run(
            'sha256sum </run/state | cut -c1-64; dd if=/dev/vda bs=1M '
            f'count={mib} iflag=direct 2>/dev/null | sha256sum | cut -c1-64'
        ).split()


@pytest.mark.any_value
def test_disk_and_memory_of_linux(daemon):
    config = LinuxConfig(objects=OBJECTS['rewind'], ram=192 * MIB)
    with LinuxDomain(daemon, config) as guest:
        guest.boot()
        first = guest.write(4)
        guest.save_file()
        guest.restore()
        assert guest.sums(4) == [first] * 2
        second = guest.write(3)
        assert guest.hmp(f'savevm {LATER}') == ''
        for size in 2, 1:
            guest.write(size)
            guest.load_by_hmp(LATER)
            assert guest.sums(3) == [second] * 2
        assert guest.qmp('query-ram-reset')['last-load']['rewound']
        guest.virsh('managedsave')
        guest.start()
        assert guest.sums(3) == [second] * 2
