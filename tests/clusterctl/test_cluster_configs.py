"""The examples: each loads without a warning, is checked without a network, and says what `up` would do."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path

import pytest

from clusterctl.providers import registry
from clusterctl.spec.definition import RayRuntime
from clusterctl.spec.load import load_file
from tests.clusterctl.cli import Cli

FOLDER = Path(__file__).parents[2] / "cluster-configs"
FILES = sorted(FOLDER.glob("*.yaml"))


def sdk_is_missing(file: Path) -> bool:
    modules = registry.entry(load_file(str(file), {}).provider.type_name).modules
    return any(importlib.util.find_spec(module.split(".")[0]) is None for module in modules)


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """A command line of somebody who has a key and no credentials."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "GOOGLE_", "CLOUDSDK_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")  # it is not there, and waiting for it takes long
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "id_ed25519").touch()
    return Cli(tmp_path)


def test_there_is_one_for_every_platform_and_kind_of_cluster() -> None:
    names = {file.stem for file in FILES}
    wanted = {"local", "quickstart", "ssh", "aws-minimal", "aws-gpu-spot", "gcp-minimal", "gcp-gpu", "docker"}
    assert names >= wanted | {"multi-zone", "autostop", "ray"}
    assert isinstance(load_file(str(FOLDER / "ray.yaml"), {}).runtime, RayRuntime)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_loads_and_its_comments_are_for_newcomers(file: Path) -> None:
    warnings: list[str] = []
    spec = load_file(str(file), {}, warnings.append)
    assert warnings == []
    assert spec.cluster_name == file.stem
    text = file.read_text()
    assert text.startswith("# ")
    assert f"clusterctl up cluster-configs/{file.name}" in text
    assert max(map(len, text.splitlines())) <= 130


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_is_checked_and_rehearsed_without_a_network(file: Path, cli: Cli, tmp_path: Path) -> None:
    if sdk_is_missing(file):
        pytest.skip("the platform's SDK is not installed")
    ran = cli.run("check", "--offline", str(file))
    assert ran.status == 0, ran.err
    assert "is fine" in ran.out
    # One's own machines of the example become addresses that refuse at once.
    own = tmp_path / file.name
    own.write_text(re.sub(r"192\.168\.1\.(\d+)", r"127.0.0.\1:1", file.read_text()))
    ran = cli.run("up", "--dry-run", str(own))
    assert "create the head's machine" in ran.out, ran.err
    words = {"local": "", "ssh": "refuse"}.get(load_file(str(file), {}).provider.type_name, "credentials")
    assert ran.status == 0 if not words else ran.status != 0
    assert words in ran.err.lower()  # after all that could be shown: what could not be asked
    assert bool(words) == ("it would not get so far" in ran.err)
