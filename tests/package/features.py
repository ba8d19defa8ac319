# SPDX-License-Identifier: GPL-2.0-or-later
"""Features of a QEMU, by its own word, and how two of them differ."""

import re
import subprocess

# Questions, and the names in the answer
QUESTIONS = {
    'device': ('-device help', r'^name "([^"]+)"'),
    'netdev': ('-netdev help', r'^(?!Available)(\S+)$'),
    'display': ('-display help', r'^(?!Available|Some|Use|For)([\w-]+)$'),
    'audiodev': ('-audiodev help', r'^(?!Available)(\S+)$'),
    'object': ('-object help', r'^  (\S+)$'),
    'block driver': ('-drive format=help', r'(?<=[: ])([\w-]+)(?= |$)'),
    'machine': ('-machine help', r'^(?!Supported)(\S+) '),
    'accelerator': ('-accel help', r'^(?!Accelerators)(\S+)$'),
    'chardev': ('-chardev help', r'^  (\S+)$'),
    'TPM': ('-tpmdev help', r'^ +(\S+) '),
    'CPU': ('-cpu help', r'^  (?!\()(\S+)(?:  .*)?$'),
}
RAM_RESET = ['ram-reset-auto', 'ram-reset-hugefile', 'ram-reset-madvise',
             'ram-reset-memset', 'ram-reset-remap']
# Features that ours has and Debian's has not
MORE = {'device': ['snapctl'], 'object': RAM_RESET}
# Features of Debian 13's that ours lacks if Debian 12 lacks the library
LESS = {'12': {'block driver': ['io_uring', 'nvme-io_uring',
                                'virtio-blk-vfio-pci',
                                'virtio-blk-vhost-user',
                                'virtio-blk-vhost-vdpa']},
        '13': {}}


def ask(binary: str) -> dict[str, list[str]]:
    found = {}
    for what, (question, name) in QUESTIONS.items():
        run = subprocess.run([binary, *question.split()], text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             check=False, timeout=60)
        found[what] = sorted(set(re.findall(name, run.stdout, re.M)))
    return found


def differences(ours: dict, theirs: dict) -> list[tuple[str, list, list]]:
    """For each kind of feature: (kind, only in ours, only in theirs)."""
    return [(what, sorted(set(ours[what]) - set(theirs[what])),
             sorted(set(theirs[what]) - set(ours[what])))
            for what in QUESTIONS]


def table(ours: dict, theirs: dict) -> str:
    """As docs/system/ram-reset-package.rst has it."""
    rows = [('feature', "Debian's", 'ours', 'only in ours',
             "only in Debian's")]
    for what, more, less in differences(ours, theirs):
        rows.append((what, str(len(theirs[what])), str(len(ours[what])),
                     ', '.join(more) or '-', ', '.join(less) or '-'))
    return '\n'.join('  ' + ' | '.join(row) for row in rows)


def surprises(ours: dict, theirs: dict, release: str) -> list[str]:
    """Differences that are no named exceptions, a sentence each."""
    found = []
    for what, more, less in differences(ours, theirs):
        if not theirs[what]:
            found.append(f"no {what} was found in Debian's QEMU")
        for who, names, known in (('ours', more, MORE),
                                  ("Debian's", less, LESS[release])):
            if names != sorted(known.get(what, [])):
                found.append(f'{what}: only in {who} are '
                             f'{", ".join(names) or "none"}, but '
                             f'{", ".join(known.get(what, [])) or "none"} '
                             'were to be')
    return found
