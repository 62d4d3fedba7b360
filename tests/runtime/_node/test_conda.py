"""Conda environments as data, and how the node's own conda is called. A script stands for it."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import sys
from typing import Any

import pytest

from runtime._node.environments import conda
from runtime._transport.channel import CallError
from tests.runtime._node.test_environments import key, service

VERSION = ".".join(map(str, sys.version_info[:2]))
TOOL = """\
#!/bin/sh
echo "$*" >> {log}
case "$*" in
    *list*) echo warning; echo '{{"envs": ["{root}", "{root}/envs/named"]}}'; exit;;
esac
while [ $# -gt 1 ]; do
    case $1 in --prefix) prefix=$2;; --file) cp -p $2 {log}.yml;; esac
    shift
done
if grep -q broken {log}.yml; then echo no such channel: $(cat {log}.yml) >&2; exit 3; fi
mkdir -p $prefix/bin && ln -s {python} $prefix/bin/python
"""


def spec(*dependencies: Any, **fields: Any) -> conda.CondaSpec:
    return conda.CondaSpec({"dependencies": list(dependencies), **fields})


def test_python_is_that_of_the_node_unless_a_description_says_otherwise() -> None:
    assert spec("numpy").specs == [f"python={VERSION}", "numpy"]
    for given in (
        "python",
        "python=3.12",
        "python>=3.9,<4",
        "conda-forge::python ==3.11.2",
        "python[version=3]",
    ):
        assert spec("numpy", given).specs == ["numpy", given]
    assert spec("python-dateutil").specs == [f"python={VERSION}", "python-dateutil"]
    assert spec("pip", {"pip": ["a", "b"]}).pip == ["a", "b"]
    with pytest.raises(ValueError, match="is a list"):
        conda.CondaSpec({"dependencies": "numpy"}).specs  # noqa: B018


def test_equal_descriptions_are_one() -> None:
    assert spec("a", channels=["c"]).digest == spec("a", channels=["c"]).digest
    assert spec("a").digest != spec("b").digest
    in_folder = conda.CondaSpec({"dependencies": ["a"]}, "/folder")
    assert in_folder.digest == spec("a").digest, "only pip reads files of the working directory"


def test_commands() -> None:
    assert conda.create_command("/x/micromamba", "/p", "f.yml")[1] == "create"
    for tool in ("/x/conda", "/x/mamba"):
        assert conda.create_command(tool, "/p", "f.yml")[1:3] == ["env", "create"]


@pytest.fixture
def node(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A node whose PATH has a tool that writes its arguments to `log`."""
    root = tmp_path / "root"
    for folder in (root, root / "envs" / "named"):
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "python").symlink_to(sys.executable)
    text = TOOL.format(log=tmp_path / "log", root=root, python=sys.executable)
    (tmp_path / "micromamba").write_text(text)
    (tmp_path / "micromamba").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")
    for name in ("CONDA_EXE", "MAMBA_EXE", "RAY_CONDA_HOME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_the_nodes_tool_makes_environments(node: pathlib.Path) -> None:
    async def scenario() -> None:
        made = service(node / "environments")
        described = {"name": "x", "channels": ["c"], "dependencies": ["numpy", {"pip": ["a"]}]}
        place = await made.prepare(key({"conda": described}))
        prefix = place.env["CONDA_PREFIX"]
        assert place.env["PATH"].startswith(f"{prefix}/bin:")
        assert place.interpreter.command[-1] == f"{prefix}/bin/python"
        assert ("CONDA_PREFIX", prefix) in place.interpreter.variables, "scripts of activation read it"
        written = json.loads((node / "log.yml").read_text())
        dependencies = [f"python={VERSION}", "numpy", {"pip": ["a"]}]
        assert written == {"channels": ["c"], "dependencies": dependencies}
        assert (node / "log").read_text() == f"create --quiet --prefix {prefix} --file {prefix}.yml\n"
        with pytest.raises(CallError, match=r"(?s)exited with status 3.*no such channel"):
            await made.prepare(key({"conda": {"dependencies": ["broken"]}}))
        await made.close()

    asyncio.run(scenario())


CHANNELS = ["https://me:secret@host/a", "https://host/t/secret/b", "https://secret@host/c"]


def test_credentials_of_channels_are_in_no_argument_and_no_error(node: pathlib.Path) -> None:
    async def scenario() -> None:
        made = service(node / "environments")
        with pytest.raises(CallError, match=r"https://\*\*\*\*@host/a.*https://host/t/\*\*\*\*/b") as failed:
            await made.prepare(key({"conda": {"channels": CHANNELS, "dependencies": ["broken"]}}))
        assert "secret" not in str(failed.value)
        assert "secret" not in (node / "log").read_text()
        assert json.loads((node / "log.yml").read_text())["channels"] == CHANNELS
        assert (node / "log.yml").stat().st_mode & 0o777 == 0o600
        assert not list((node / "environments").rglob("*.yml"))
        await made.close()

    asyncio.run(scenario())


def test_the_solver_gets_credentials_of_channels_as_its_input(
    node: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (node / "micromamba").unlink()
    monkeypatch.setattr(conda.importlib.util, "find_spec", lambda name: object())
    seen: list[tuple[list[str], bytes]] = []

    async def run(command: list[str], cwd: str, environment: dict[str, str], given: bytes = b"") -> str:
        seen.append((command, given))
        return ""

    monkeypatch.setattr(conda, "run", run)
    asyncio.run(conda.build(spec("numpy", channels=CHANNELS), node / "made", {}))
    [(command, given)] = seen
    assert "secret" not in " ".join(command)
    assert json.loads(given)["channels"] == CHANNELS


def test_the_nodes_tool_knows_names(node: pathlib.Path) -> None:
    assert asyncio.run(conda.find("named")) == str(node / "root" / "envs" / "named")
    assert asyncio.run(conda.find("base")) == str(node / "root")


def test_without_any_tool(node: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (node / "micromamba").unlink()
    monkeypatch.setattr(conda.importlib.util, "find_spec", lambda name: None)

    async def scenario() -> None:
        made = service(node / "environments")
        with pytest.raises(CallError, match=r"needs conda, mamba or micromamba.*clusterctl\[conda\]"):
            await made.prepare(key({"conda": {"dependencies": ["numpy"]}}))
        await made.close()

    asyncio.run(scenario())
