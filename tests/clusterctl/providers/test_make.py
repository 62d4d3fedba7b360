"""The door to all providers: what is missing here is said before anything begins."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from clusterctl.errors import UsageProblem
from clusterctl.providers import registry
from clusterctl.spec.load import load_file

CONFIGS = Path(__file__).parents[3] / "cluster-configs"


@pytest.mark.parametrize(
    ("file", "module"),
    [
        ("ssh", "paramiko"),
        ("aws-minimal", "boto3"),
        ("aws-minimal", "paramiko"),
        ("gcp-minimal", "google.cloud.compute_v1"),
    ],
)
def test_a_package_that_is_missing_is_named_with_how_to_get_it(
    file: str, module: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    find = importlib.util.find_spec

    def found(name: str) -> Any:
        return None if name == module else find(name)

    monkeypatch.setattr(importlib.util, "find_spec", found)
    settings = {"owner": "o", "folder": str(tmp_path)}
    with pytest.raises(UsageProblem, match=f"package of {module}, which is not installed") as missing:
        registry.make(load_file(str(CONFIGS / f"{file}.yaml"), {}), "c-1", settings)
    assert f"pip install 'clusterctl[{file.partition('-')[0]}]'" in missing.value.hint


def test_a_package_whose_folder_is_missing_is_missing() -> None:
    assert not registry._is_there("no_such_package.module")
    assert registry._is_there("json.decoder")
