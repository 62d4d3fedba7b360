"""The scripts that write on a machine whose it is, in every shell that may be its /bin/sh."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from clusterctl.providers.ssh import claim as claims
from clusterctl.providers.ssh.claim import FILE, FOLDER, Claim, _count
from tests.shells import SHELLS

KEY = "ssh-ed25519 AAAAC3 clusterctl:me:name"
OTHERS = "ssh-rsa AAAAB3 a person\n\n# ssh-rsa AAAAB4 clusterctl:me:name2\n"
Script = tuple[str, Mapping[str, str]]
Run = Callable[..., str]


@pytest.fixture(params=SHELLS, ids=shlex.join)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Runs a script in a home directory; it is to succeed, or to end with `status`."""

    def run(script: Script, status: int = 0, path: str = os.environ["PATH"]) -> str:
        command, env = script
        shell = [str(shutil.which(request.param[0])), *request.param[1:]]
        ran = subprocess.run(
            [*shell, "-c", command],
            cwd=tmp_path,
            env={**env, "PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert ran.returncode == status, ran.stdout
        return ran.stdout

    return run


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    (tmp_path / ".ssh").mkdir(mode=0o700)
    return tmp_path / ".ssh" / "authorized_keys"


def drafted(home: Path, name: str) -> Claim:
    return Claim(
        id=f"h~{name}",
        host="h",
        entry="h",
        hostname="h",
        node_type="w",
        tags={"words": "it's \\n"},
        launched_s=1.0,
        address="10.0.0.1",
        home=str(home),
        path="/bin",
        session_dir=str(home / "the user's" / name),
    )


def test_a_key_is_added_without_a_program_and_taken_back(run: Run, keys: Path) -> None:
    keys.write_text(OTHERS)
    keys.chmod(0o640)
    for _ in range(2):
        run(claims.let_in(KEY), path="/nowhere")
        assert keys.read_text() == f"{OTHERS}{KEY}\n"
    run(claims.keep_out("clusterctl:me:name"))
    assert keys.read_text() == OTHERS
    assert keys.stat().st_mode & 0o777 == 0o640


def test_a_key_comes_on_a_line_of_its_own(run: Run, keys: Path) -> None:
    keys.write_text(OTHERS.rstrip("\n"))
    run(claims.let_in(KEY), path="/nowhere")
    assert keys.read_text() == f"{OTHERS}{KEY}\n"


def test_a_key_replaces_one_with_its_mark(run: Run, keys: Path) -> None:
    keys.write_text(f"{OTHERS}ssh-ed25519 AAAAC2 clusterctl:me:name\n")
    run(claims.let_in(KEY))
    assert keys.read_text() == f"{OTHERS}{KEY}\n"
    assert [*keys.parent.iterdir()] == [keys]


def test_who_has_no_keys_gets_a_file_of_them(run: Run, tmp_path: Path) -> None:
    run(claims.let_in(KEY))
    keys = tmp_path / ".ssh" / "authorized_keys"
    assert keys.read_text() == f"{KEY}\n"
    assert (keys.stat().st_mode & 0o777, keys.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    run(claims.keep_out("clusterctl:me:name"))
    assert keys.read_text() == ""


def test_keys_that_cannot_be_written_anew_stay_as_they_are(
    run: Run, keys: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if "busybox" in request.node.name:
        pytest.skip("its grep is a part of it")
    before = f"{OTHERS}ssh-ed25519 AAAAC2 clusterctl:me:name\n"
    keys.write_text(before)
    (tmp_path / "bin").mkdir()
    for name in ("cp", "mv", "rm"):
        (tmp_path / "bin" / name).symlink_to(str(shutil.which(name)))
    full = tmp_path / "bin" / "grep"  # as one that finds no room for what it writes
    full.write_text("#!/bin/sh\n[ $1 = -q ] || exit 2\n")
    full.chmod(0o755)
    for script in (claims.let_in(KEY), claims.keep_out("clusterctl:me:name")):
        run(script, status=1, path=str(tmp_path / "bin"))
        assert keys.read_text() == before
        assert [*keys.parent.iterdir()] == [keys]


def test_a_machine_is_taken_once(run: Run, tmp_path: Path) -> None:
    one, two = drafted(tmp_path, "one"), drafted(tmp_path, "two")
    said = run(claims.take(one))
    assert run(claims.take(two)) == said == (tmp_path / FILE).read_text()
    assert "h~one" in said
    assert all(entry.samefile(tmp_path / FILE) for entry in (tmp_path / FOLDER).iterdir())
    assert [path.name for path in (tmp_path / "the user's").iterdir()] == ["one"]


def test_a_folder_that_is_anothers_is_not_used(run: Run, tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root gives folders to others")
    folder = tmp_path / "the user's" / "one"
    folder.mkdir(parents=True)
    os.chown(folder, 12345, 12345)
    assert "the user's/one belongs to another user" in run(claims.take(drafted(tmp_path, "one")), status=1)
    assert not (tmp_path / FILE).exists()


def test_a_home_without_hard_links_is_named_as_the_reason(run: Run, tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    refusing = programs / "ln"
    refusing.write_text("#!/bin/sh\necho 'ln: Operation not permitted' >&2\nexit 1\n")
    refusing.chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    said = run(claims.take(drafted(tmp_path, "one")), status=1, path=path)
    assert said == "its home folder must allow hard links, and does not: ln: Operation not permitted\n"
    assert not (tmp_path / "the user's" / "one").exists()


def test_a_python_below_the_home_folder_starts_what_ends_processes(run: Run, tmp_path: Path) -> None:
    claim = drafted(tmp_path, "one")
    run(claims.take(claim))
    python = tmp_path / "my pythons" / "python"
    python.parent.mkdir()
    python.symlink_to(shutil.which("python3") or "")
    command, env = claims.give_back(claim, "~/my pythons/python")
    run((command, {**env, "HOME": str(tmp_path)}))
    assert not (tmp_path / FILE).exists()
    assert claim.environment("~/my pythons/python")["CLUSTERCTL_BASE_PYTHON"] == str(python)


def test_processors_are_counted_as_the_kernel_lists_them() -> None:
    assert [_count(text) for text in ("0", "0-3", "0-3,8", "1,3-4")] == [1, 4, 5, 3]
