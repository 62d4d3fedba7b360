"""The wheels of a runtime: from an index in a folder always, and from the package index where that can be reached."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.tags import parse_tag

from clusterctl.artefacts import requirements, wheels
from clusterctl.artefacts.target import NoRuntime, Target
from clusterctl.launcher import shipping

TARGET = Target((3, 13), "aarch64")
FITS = "cp313-cp313-manylinux_2_17_aarch64"


def wheel(folder: Path, name: str, version: str, tag: str = "py3-none-any", *requires: str) -> Path:
    """A wheel with one module."""
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {line}\n" for line in requires)
    contents = {
        f"{name}.py": f"VERSION = '{version}'\n",
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    contents[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*contents, f"{info}/RECORD"])
    file = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(file, "w") as out:
        for path, text in contents.items():
            out.writestr(path, text)
    return file


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that is all that pip is configured for, and a distribution of ours that requires some."""
    index = tmp_path / "index"
    index.mkdir()
    config = tmp_path / "pip.conf"
    config.write_text(f"[global]\nno-index = true\nfind-links = {index}\n")
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    site = tmp_path / "ours"
    with zipfile.ZipFile(
        wheel(
            tmp_path,
            "clusterctl",
            "1",
            "py3-none-any",
            "fast>=2",
            "old; python_version < '3.13'",
            "new; python_version >= '3.13'",
            "far; extra == 'cloud'",
            "clusterctl[cloud]; extra == 'all'",
        )
    ) as packed:
        packed.extractall(site)
    (own,) = importlib.metadata.distributions(path=[str(site)])
    monkeypatch.setattr(wheels, "installed", {"clusterctl": own}.get)
    wheel(index, "fast", "1", FITS)
    wheel(index, "fast", "2", "cp311-cp311-manylinux_2_17_x86_64")
    wheel(index, "fast", "2", FITS)
    wheel(index, "new", "1", "py3-none-any", "deep; python_version >= '3.13'")
    wheel(index, "old", "1")
    wheel(index, "deep", "1")
    wheel(index, "far", "1")
    wheel(index, "pip", "99")
    return index


def locked(site: Path) -> list[str]:
    return [line.split()[0] for line in (site.parent / "lock.txt").read_text().splitlines()[1:]]


def test_the_targets_markers_decide_and_what_fits_is_locked(index: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    site = wheels.fetch(TARGET, ["all"], cache)
    found, unmet = requirements.closure(
        [Requirement("fast"), Requirement("new"), Requirement("far"), Requirement("pip")],
        lambda name: requirements.in_folder(name, str(site)),
        TARGET.environment(),
    )
    assert (sorted(found), unmet) == (["deep", "far", "fast", "new", "pip"], [])
    assert {"deep==1", "far==1", "fast==2", "new==1", "pip==99"} <= {*locked(site)}
    assert "old==1" not in locked(site)
    fitting = hashlib.sha256((index / f"fast-2-{FITS}.whl").read_bytes()).hexdigest()
    assert f"fast==2 --hash=sha256:{fitting}\n" in (site.parent / "lock.txt").read_text()
    assert [path.name for path in (cache / "wheels").iterdir()] == [site.parent.name], "no draft is left"


def test_what_was_fetched_is_not_fetched_again(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = wheels.fetch(TARGET, [], tmp_path / "cache")
    monkeypatch.setattr(wheels, "download", lambda *_: pytest.fail("it is there"))
    assert wheels.fetch(TARGET, [], tmp_path / "cache") == site


def test_a_wheel_that_there_is_not(index: Path, tmp_path: Path) -> None:
    (index / f"fast-2-{FITS}.whl").unlink()
    with pytest.raises(NoRuntime, match=r"no wheel of fast>=2 for Python 3.13 on aarch64") as failed:
        wheels.fetch(TARGET, [], tmp_path / "cache")
    assert "provider.python" in failed.value.advice
    assert [*(tmp_path / "cache" / "wheels").iterdir()] == [], "whole, or not at all"


def test_an_index_that_cannot_be_reached(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = "[global]\nindex-url = http://127.0.0.1:9/simple\nretries = 1\ntimeout = 1\n"
    Path(os.environ["PIP_CONFIG_FILE"]).write_text(config)
    with pytest.raises(NoRuntime, match="index cannot be reached"):
        wheels.fetch(TARGET, [], tmp_path / "cache")
    assert [*(tmp_path / "cache" / "wheels").iterdir()] == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fast-2-cp313-cp313-manylinux_2_17_x86_64.whl", "is not for Python 3.13 on aarch64"),
        ("fast-2-py3-none-any.whl", "is no wheel"),
        ("fast.whl", "is no wheel"),
    ],
)
def test_what_pip_brings_is_checked(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: str
) -> None:
    def bring(target: Target, wanted: object, folder: Path) -> None:
        folder.mkdir()
        (folder / name).write_bytes(b"no zip file")

    monkeypatch.setattr(wheels, "download", bring)
    with pytest.raises(NoRuntime, match=words):
        wheels.fetch(TARGET, [], tmp_path / "cache")


def test_drafts_of_the_dead_and_the_oldest_go(index: Path, tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    folder = tmp_path / "cache" / "wheels"
    for number in range(12):
        (folder / f"old-{number}").mkdir(parents=True)
        os.utime(folder / f"old-{number}", (number, number))
    (folder / f".half.{gone.pid}").mkdir()
    (folder / f".mine.{os.getppid()}").mkdir()
    site = wheels.fetch(TARGET, [], tmp_path / "cache")
    left = {path.name for path in folder.iterdir()}
    assert left == {site.parent.name, f".mine.{os.getppid()}", *(f"old-{number}" for number in range(5, 12))}


def test_without_pip_and_uv_it_is_said_what_is_missing(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheels.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoRuntime, match="pip or uv"):
        wheels.fetch(TARGET, [], tmp_path / "cache")
    uv = tmp_path / "uv"
    uv.write_text(f'#!/bin/sh\n[ "$1 $2" = "tool run" ] && shift 2 && exec {sys.executable} -m "$@"\n')
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert wheels.fetch(TARGET, [], tmp_path / "cache").is_dir()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("minor", [11, 12, 13, 14])
def test_the_runtimes_of_the_package_index(tmp_path: Path, minor: int, machine: str) -> None:
    """All that a node and a head need is in the archives, and every wheel's own tags are those of the target."""
    target = Target((3, minor), machine)
    if target.is_here:
        pytest.skip("this Python packs what is installed here")
    try:
        shipment = shipping.packed(target, str(tmp_path), ["ssh"])
    except NoRuntime as error:
        if "cannot be reached" in error.what:
            pytest.skip(error.what)
        raise
    names: set[str] = set()
    for part in shipment.archives:
        with tarfile.open(part.file) as tar:
            for member in tar.getmembers():
                names.add(member.name)
                if member.name.endswith(".dist-info/WHEEL"):
                    file = tar.extractfile(member)
                    assert file is not None
                    lines = file.read().decode().splitlines()
                    tags = [line.removeprefix("Tag: ") for line in lines if line.startswith("Tag: ")]
                    assert any(parse_tag(tag) & wheels.supported(target) for tag in tags), member.name
    folder = f"lib/python3.{minor}/site-packages"
    extension = f"{target.abi}.so"
    assert {
        *(
            f"{folder}/runtime/__init__.py",
            f"{folder}/clusterctl/head/server.py",
            f"{folder}/paramiko/__init__.py",
        ),
        *(f"{folder}/msgspec/_core.{extension}", f"{folder}/yaml/_yaml.{extension}", "pip.whl"),
    } <= names
    extensions = [name for name in names if name.endswith(".so") and "/" in name]
    assert [name for name in extensions if ".cpython-" in name and extension not in name] == []
    assert not [
        name for name in extensions if f"{folder}/runtime/" in name or f"{folder}/clusterctl/" in name
    ]
    assert bool([name for name in names if name.endswith(".pyc")]) is (target.python == sys.version_info[:2])
