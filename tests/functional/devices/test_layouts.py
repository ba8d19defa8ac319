# SPDX-License-Identifier: GPL-2.0-or-later
"""A class of devices whose structures are not the ones that were read is loaded
with each load, and QEMU says why."""

# Takes: 30 s

from common import RELEASES, ROOT
from lib import layouts
from lib.guests import Ring3
from lib.relink import BUILD, relinked
from lib.rewinding import RAM_SIZE, assert_rewound

HEADER = 'include/hw/pci-host/q35.h'


def loads(qemu, tmp_path) -> tuple[int, dict, str]:
    """How many devices the third load leaves alone, which classes cannot be,
    and the monitor's words."""
    with Ring3(tmp_path, accel='tcg', ram=RAM_SIZE, strategy='auto', qemu=qemu,
               options=',rewind=on,verify=on') as guest:
        guest.stop()
        guest.save('s')
        for _ in range(3):
            guest.load('s')
            assert_rewound(guest)
        found = guest.qmp('query-ram-reset')['loaded-devices']
        return (guest.last_load()['devices-kept'],
                {c['class']: c['reason'] for c in found
                 if 'does not know' not in c['reason']},
                guest.hmp('info ram-reset'))


def test_all_classes_of_this_build_are_known():
    found = layouts.classes(BUILD)
    table = (BUILD / 'system/ram-reset' / layouts.TABLE).read_text()
    assert len(found) > 15
    for name, reason in found.items():
        assert reason == 'known' or reason.endswith('is not in this build')
        assert f'"{name}", NULL' in table or reason in table
    assert list(found.values()).count('known') > 3


def test_new_member_is_seen(tmp_path):
    """It fits into a hole, so that nothing else moves."""
    header = tmp_path / HEADER
    header.parent.mkdir(parents=True)
    text = (layouts.source() / HEADER).read_text()
    end = text.index('}', text.index('struct MCHPCIState {'))
    header.write_text(f'{text[:end]}int planted:1;\n{text[end:]}')
    build = layouts.planted_build(tmp_path, tmp_path / 'include')
    found = layouts.classes(build)
    assert 'MCHPCIState is not the one that was read' in found.pop('mch')
    assert not [n for n, why in found.items() if 'was read' in why]


def test_moved_members_are_seen(tmp_path):
    record = tmp_path / 'record'
    for structure, old, new in (
            # onto the heap, moved, gone
            ('VMMouseState', '2 status uint16_t', r'\g<at> 8 status uint16_t*'),
            ('MCHPCIState', '2 ext_tseg_mbytes uint16_t',
             '8 2 ext_tseg_mbytes uint16_t'),
            ('HIDState', '4 n uint32_t', r'\g<at> 4 was uint32_t')):
        layouts.planted_record(record, structure, old, new)
    found = layouts.classes(BUILD, '--record', record)
    for name, reason in (
            ('vmmouse', 'not uint16_t*, 8 bytes at '),
            ('mch', 'not uint16_t, 2 bytes at 8'),
            ('usb-tablet', 'was is gone')):
        assert reason in found.pop(name)
    assert not [n for n, why in found.items() if 'was read' in why]


def test_what_is_not_known_is_loaded(tmp_path):
    record = layouts.planted_record(tmp_path / 'record', 'VMMouseState',
                                    '2 status uint16_t', '1 2 status uint16_t')
    qemu = relinked(tmp_path, layouts.TABLE,
                    layouts.planted_table(tmp_path, record))
    folders = [tmp_path / name for name in ('all', 'without')]
    for folder in folders:
        folder.mkdir()
    kept, classes, text = loads(BUILD / qemu.name, folders[0])
    assert kept and not classes and 'vmmouse' not in text
    fewer, classes, text = loads(qemu, folders[1])
    assert fewer == kept - 1
    assert list(classes) == ['vmmouse']
    assert 'status is uint16_t' in classes['vmmouse']
    assert f'{classes["vmmouse"]}:\n    vmmouse\n' in \
        text.replace('\r', '')


def test_a_release_that_nobody_has_read_has_no_class(tmp_path):
    record = tmp_path / 'record'
    record.write_text(layouts.RECORD.read_text().split('\n\n')[0] + '\n')
    found = layouts.classes(BUILD, '--record', record)
    assert not [n for n, why in found.items()
                if 'nobody has read' not in why and 'not in this' not in why]


def test_documents_name_the_releases_without_a_record():
    heads = [line.split() for line in layouts.RECORD.read_text().splitlines()
             if line and line[0] not in ' #']
    read = {release for head in heads for release in head[2:]}
    for release in set(RELEASES) - read:
        assert f'{release} (where each load still loads all devices)' in \
            (ROOT / 'README.md').read_text()
    assert ('loads all devices' in (ROOT / 'README.md').read_text()) == \
        bool(set(RELEASES) - read)
