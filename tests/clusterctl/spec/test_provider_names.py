"""The table of provider types, and that each type keeps to what the table promises."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import clusterctl.providers
from clusterctl.providers import registry
from clusterctl.spec import provider_names
from clusterctl.spec.provider_names import NAMES


def test_every_package_of_a_provider_is_in_the_table() -> None:
    (folder,) = clusterctl.providers.__path__
    assert {path.parent.name for path in Path(folder).glob("*/provider.py")} <= set(NAMES)


def test_the_keys_are_tagged_with_the_name() -> None:
    assert tuple(config.__struct_config__.tag for config in provider_names.configs()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_there_is_an_entry(name: str) -> None:
    entry = registry.entry(name)
    assert bool(entry.extra) == bool(entry.modules)
    assert entry.rays is None or entry.rays.implied


def test_the_table_imports_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from clusterctl.providers import registry\n"
        "from clusterctl.spec import provider_names\n"
        "import clusterctl.spec.definition\n"
        "[registry.entry(name) for name in provider_names.NAMES]\n"
        "print(sorted({'boto3', 'botocore', 'google', 'paramiko', 'asyncio'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ran.stdout == "[]\n", ran.stderr
