# SPDX-License-Identifier: GPL-2.0-or-later
"""The manifests of the manual, against KubeVirt's own schema and the hook."""

import copy
import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from lib import products
from lib.clients import client
from lib.documents import documents
from lib.kubevirt import NAME, Hook
from lib.xmltool import arguments, domain

yaml = client('yaml')
jsonschema = client('jsonschema')
SCHEMA = products.BUILD / 'kubevirt/schema.json'
SIDECARS = 'hooks.kubevirt.io/hookSidecars'


def manifests() -> Iterator[Any]:
    for document in documents():
        for block in document.blocks:
            if block.language == 'yaml':
                for content in yaml.safe_load_all(block.text):
                    yield pytest.param(
                        content, id=f'{document.path.name}:{block.line}')


ALL = list(manifests())


@pytest.fixture(scope='module')
def schema() -> dict:
    """It takes no names that it does not have, as kubectl by default."""
    if not SCHEMA.exists():
        missing = SCHEMA.parent.with_name('kubevirt.missing')
        pytest.skip(missing.read_text().strip() if missing.exists() else
                    'scripts/fetch-kubevirt-schema fetches the schema')
    whole = json.loads(SCHEMA.read_text())
    for definition in whole['definitions'].values():
        if 'properties' in definition:
            definition['additionalProperties'] = False
    return whole


def errors(schema: dict, manifest: dict) -> list[str]:
    assert manifest['apiVersion'] == 'kubevirt.io/v1'
    name = f'kubevirt.io/api/core/v1.{manifest["kind"]}'
    assert name in schema['definitions']
    pointer = '#/definitions/' + name.replace('/', '~1')
    validator = jsonschema.Draft7Validator({**schema, '$ref': pointer})
    return [f'{e.json_path}: {e.message}'
            for e in validator.iter_errors(manifest)]


def misspelt(content: Any, path: str = '') -> Iterator[tuple[str, Any]]:
    """Copies of it, each with a name that is wrong."""
    for key, value in content.items() if isinstance(content, dict) else \
            enumerate(content) if isinstance(content, list) else ():
        here = f'{path}/{key}'
        # names of annotations and labels are free
        if here.startswith('/metadata/annotations/'):
            continue
        if isinstance(content, dict) and here not in ('/apiVersion', '/kind'):
            yield here, {('wrong' if k == key else k): v
                         for k, v in content.items()}
        for name, inner in misspelt(value, here):
            changed = copy.copy(content)
            changed[key] = inner
            yield name, changed


@pytest.mark.parametrize('manifest', ALL)
def test_manifest_fits_the_schema(schema, manifest):
    assert errors(schema, manifest) == []


@pytest.mark.parametrize('manifest', ALL)
def test_schema_knows_each_name_of_it(schema, manifest):
    """Otherwise it would not see what is wrong."""
    names = []
    for name, wrong in misspelt(manifest):
        assert errors(schema, wrong), name
        names.append(name)
    assert '/spec/domain/devices/disks/0/disk/bus' in names, names


@pytest.mark.parametrize('manifest', ALL)
def test_hook_takes_the_manifest(tmp_path, manifest):
    """Its ConfigMap has the hook where the shim looks for it."""
    annotations = manifest['metadata']['annotations']
    sidecar, = json.loads(annotations[SIDECARS])
    assert sidecar['configMap']['key'] == NAME
    assert sidecar['configMap']['hookPath'] == f'/usr/bin/{NAME}'
    done = Hook(sys.executable, tmp_path)(json.dumps(manifest),
                                          domain('kubevirt'))
    assert done.returncode == 0, done.stderr
    assert arguments(done.stdout)[-1] == \
        annotations['ram-reset.vm.kubevirt.io/object']
    assert annotations['ram-reset.vm.kubevirt.io/emulator'].encode() in \
        done.stdout


def test_the_manual_shows_one():
    assert ALL
