"""The key pair of a cluster: whatever happens to whoever makes it, the next one has a pair that fits."""

from __future__ import annotations

import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from clusterctl.providers import identity
from runtime._system import files
from tests.killed_writers import killed_after_each_line

SOURCES = {str(identity.__file__), str(files.__file__)}


def public_half(folder: Path) -> str:
    """Of the private key, as ssh itself reads it."""
    private = folder / "ssh_key"
    command = ["ssh-keygen", "-y", "-P", "", "-f", str(private)]
    return " ".join(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[:2])


def assert_whole(folder: Path, line: str) -> None:
    assert line == f"{public_half(folder)} mark"
    assert (folder / "ssh_key.pub").read_text() == f"{line}\n"
    assert stat.S_IMODE((folder / "ssh_key").stat().st_mode) == 0o600
    assert identity.ensure(folder, "mark") == line


def test_a_pair_is_made_once(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    line = identity.ensure(folder, "mark")
    assert_whole(folder, line)
    assert sorted(file.name for file in folder.iterdir()) == ["ssh_key", "ssh_key.pub"]


def test_whoever_makes_it_may_be_killed_at_any_moment(tmp_path: Path) -> None:
    identity.ensure(tmp_path / "first", "mark")  # all that it imports is there, for all processes
    folder = tmp_path / "cluster"
    deaths = 0
    for _ in killed_after_each_line(lambda: identity.ensure(folder, "mark"), SOURCES):
        deaths += 1
        if folder.exists():
            copy = shutil.copytree(folder, tmp_path / f"after-{deaths}")
            assert_whole(copy, identity.ensure(copy, "mark"))
            shutil.rmtree(folder)
    assert deaths > 20
    assert_whole(folder, identity.ensure(folder, "mark"))


@pytest.mark.parametrize("left", [b"", b"\n", b"ssh-ed25519", b"ssh-ed25519 AAAA mark", b"\xff", None])
def test_a_damaged_public_half_is_made_again_from_the_private_one(tmp_path: Path, left: bytes | None) -> None:
    line = identity.ensure(tmp_path, "mark")
    public = tmp_path / "ssh_key.pub"
    public.unlink() if left is None else public.write_bytes(left)
    assert identity.ensure(tmp_path, "mark") == line
    assert_whole(tmp_path, line)


@pytest.mark.parametrize("part", [0.0, 0.5, 0.99, None])
def test_a_damaged_private_half_is_made_anew_with_its_public_one(tmp_path: Path, part: float | None) -> None:
    line = identity.ensure(tmp_path, "mark")
    private = tmp_path / "ssh_key"
    if part is None:
        private.unlink()
    else:
        private.write_bytes(private.read_bytes()[: int(private.stat().st_size * part)])
    again = identity.ensure(tmp_path, "mark")
    assert again != line
    assert_whole(tmp_path, again)


def test_halves_of_two_pairs_are_none(tmp_path: Path) -> None:
    line = identity.ensure(tmp_path / "a", "mark")
    identity.ensure(tmp_path / "b", "mark")
    shutil.copyfile(tmp_path / "b" / "ssh_key.pub", tmp_path / "a" / "ssh_key.pub")
    assert identity.ensure(tmp_path / "a", "mark") == line
