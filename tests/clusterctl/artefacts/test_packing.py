"""The archives of a runtime: what goes into them, and what stays in the cache. What is installed of them is tested
beside `launcher.shipping`."""

from __future__ import annotations

import os
import py_compile
import subprocess
from pathlib import Path
from typing import IO

import pytest

from clusterctl.artefacts import packing
from clusterctl.artefacts.target import Target

HERE = Target.here() or pytest.fail("no machine has a Python like this one")


def test_bytecode_that_is_being_written_does_not_travel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python writes it beside its place first, and a file of that name may be gone before it is read."""
    package = tmp_path / "shippedhere"
    for name in ("__init__.py", "data.json", "part/__init__.py"):
        for there in (package / name, package / "part" / "__pycache__" / "__init__.cpython-311.pyc.139874"):
            there.parent.mkdir(parents=True, exist_ok=True)
            there.touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(packing, "_PACKAGES", (package.name,))
    expected = ["__init__.py", "data.json", "part/__init__.py"]
    assert sorted(packing._own_files()) == [f"{package.name}/{name}" for name in expected]


@pytest.mark.parametrize("is_current", [True, False])
def test_bytecode_that_is_here_is_used_if_it_is_up_to_date(tmp_path: Path, is_current: bool) -> None:
    module = tmp_path / "module.py"
    module.write_text("VALUE = 1\n")
    written = Path(py_compile.compile(str(module), doraise=True))
    written.write_bytes(written.read_bytes() + b"used")
    if not is_current:
        os.utime(module, (1, 1))
    code = packing._bytecode(module, module.read_bytes())
    assert code.endswith(b"used") is is_current


def test_a_module_for_another_python_is_left_uncompiled(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text("print 'two'\n")
    assert packing._bytecode(module, module.read_bytes()) == b""


def test_old_archives_go(tmp_path: Path) -> None:
    for number in range(5):
        old = tmp_path / f"runtime-{number}.tar.gz"
        old.touch()
        os.utime(old, (number, number))
    packing._archive("runtime", {}, HERE, tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
    assert not (tmp_path / "runtime-2.tar.gz").exists()


def test_an_archive_is_on_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[bytes, list[Path]]] = []

    def fsync(number: int) -> None:
        synced.append((Path(f"/proc/self/fd/{number}").read_bytes(), list(tmp_path.glob("runtime-*"))))

    monkeypatch.setattr(os, "fsync", fsync)
    built = packing._archive("runtime", {"pyproject.toml": Path(__file__)}, HERE, tmp_path)
    assert synced == [(Path(built.file).read_bytes(), [])]


def test_what_was_built_half_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    mine = tmp_path / f".runtime-1.tar.gz.{os.getppid()}"  # of somebody who builds just now
    for draft in (tmp_path / f".head-1.tar.gz.{gone.pid}", mine):
        draft.write_bytes(b"half")

    def full(files: dict[str, Path], out: IO[bytes], compiles: bool) -> None:
        out.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(packing, "_build", full)
    with pytest.raises(OSError, match="No space left"):
        packing._archive("runtime", {}, HERE, tmp_path)
    assert list(tmp_path.iterdir()) == [mine]


def test_what_another_process_drops_meanwhile_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "runtime-old.tar.gz"
    old.touch()
    modified = os.path.getmtime

    def drop_first(path: Path) -> float:
        old.unlink(missing_ok=True)
        return modified(path)

    monkeypatch.setattr(packing.os.path, "getmtime", drop_first)
    made = packing._archive("runtime", {}, HERE, tmp_path)
    assert [*tmp_path.iterdir()] == [Path(made.file)]
