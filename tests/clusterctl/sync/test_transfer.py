"""What is particular to one machine or another; the rest is in tests/contract/test_sync_contract.py."""

from __future__ import annotations

import errno
import json
import os
import pathlib
import signal
import subprocess
import sys
from io import BytesIO, StringIO

import pytest

from clusterctl.shell.local import LocalShell
from clusterctl.sync import receiver, remote, sender, transfer
from clusterctl.sync.manifest import DigestCache, digest_of, read
from clusterctl.sync.receiver import Damaged, Receiver, take_back
from clusterctl.sync.rules import rules
from clusterctl.sync.sender import There, changes
from clusterctl.sync.transfer import Mount, SyncError, contents_digest, manifests, pull, push


@pytest.fixture
def shell(tmp_path: pathlib.Path) -> LocalShell:
    (tmp_path / "home").mkdir()
    return LocalShell(str(tmp_path / "home"), {"PATH": "/usr/bin:/bin"})


@pytest.fixture
def source(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a").write_text("a")
    return tmp_path / "source"


def mounts(source: pathlib.Path, target: str) -> list[Mount]:
    return [Mount(target, str(source), rules())]


def test_what_is_the_same_folder_is_not_copied_onto_itself(shell: LocalShell, source: pathlib.Path) -> None:
    inode = (source / "a").stat().st_ino
    wanted = mounts(source, str(source))
    assert push(shell, wanted, manifests(wanted))[0].changes.files == ()
    assert (source / "a").stat().st_ino == inode


def test_the_digest_changes_with_contents_modes_and_targets(source: pathlib.Path) -> None:
    def digest(target: str = "~/x") -> str:
        wanted = mounts(source, target)
        return contents_digest(wanted, manifests(wanted))

    first = digest()
    assert digest() == first
    assert digest("~/y") != first
    (source / "a").chmod(0o755)
    second = digest()
    (source / "a").write_text("b")
    assert len({first, second, digest()}) == 3


def test_a_digest_is_not_read_again_unless_the_file_may_have_changed(tmp_path: pathlib.Path) -> None:
    old, young = tmp_path / "old", tmp_path / "young"
    for path in (old, young):
        path.write_text("one")
    os.utime(old, (1, 1))
    cache = str(tmp_path / "cache" / "digests")
    with DigestCache(cache) as digests:
        first = {path: digests.digest(str(path), path.stat()) for path in (old, young)}
    status = {path: path.stat() for path in (old, young)}
    for path in (old, young):
        path.write_text("two")
    with DigestCache(cache) as digests:
        again = {path: digests.digest(str(path), status[path]) for path in (old, young)}
    assert again[old] == first[old]  # by its time, size and inode
    assert again[young] != first[young]  # its time was too new to tell


def test_a_file_that_vanishes_on_the_way_is_named(shell: LocalShell, source: pathlib.Path) -> None:
    wanted = mounts(source, "~/data")
    found = manifests(wanted)
    (source / "a").unlink()
    with pytest.raises(SyncError, match=r"source/a: No such file"):
        push(shell, wanted, found)


def test_what_vanishes_as_a_whole_is_named(shell: LocalShell, source: pathlib.Path) -> None:
    wanted = mounts(source / "a", "~/data")
    found = manifests(wanted)
    (source / "a").unlink()
    with pytest.raises(SyncError, match=r"source/a: No such file"):
        push(shell, wanted, found)


def test_a_place_that_cannot_be_written_here_is_named(shell: LocalShell, source: pathlib.Path) -> None:
    wanted = mounts(source, "~/data")
    push(shell, wanted, manifests(wanted))
    with pytest.raises(SyncError, match="/proc/"):
        pull(shell, "~/data", "/proc/nowhere")


def test_reading_there_may_take_any_time_but_not_stand_still(
    source: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (source / "large").write_bytes(bytes(5_000_000))
    request = {"source": str(source), "excludes": [], "ignore_files": []}
    alarms: list[int] = []
    monkeypatch.setattr(signal, "alarm", alarms.append)
    monkeypatch.setattr(sys, "stdin", StringIO(json.dumps(request)))
    remote.tell()
    assert "large" in capsys.readouterr().out
    assert len(alarms) > 4  # more than there are files
    assert {*alarms[:-1]} == {remote.SILENCE_S}
    assert alarms[-1] == 0


def test_what_stands_still_there_is_ended_with_words(source: pathlib.Path, tmp_path: pathlib.Path) -> None:
    stuck = tmp_path / "stuck"
    stuck.write_text("#!/bin/sh\nkill -ALRM $$\n")
    stuck.chmod(0o755)
    shell = LocalShell(str(tmp_path), {"PATH": "/usr/bin:/bin", "CLUSTERCTL_BASE_PYTHON": str(stuck)})
    with pytest.raises(SyncError, match=f"nothing could be read or written for {remote.SILENCE_S} s"):
        pull(shell, str(source), str(tmp_path / "back"))


def test_a_folder_here_that_cannot_be_looked_into_is_named(
    shell: LocalShell, source: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = mounts(source, "~/data")
    push(shell, wanted, manifests(wanted))

    def lstat(path: str) -> os.stat_result:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(os, "lstat", lstat)
    with pytest.raises(SyncError, match="back: Permission denied"):
        pull(shell, "~/data", str(tmp_path / "back"))


def test_names_that_are_no_text_travel(
    shell: LocalShell, source: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    odd = os.path.join(os.fsencode(source), b"\xff\xfe")
    with open(odd, "w") as file:
        file.write("odd")
    wanted = mounts(source, "~/data")
    push(shell, wanted, manifests(wanted))
    assert b"\xff\xfe" in os.listdir(os.fsencode(tmp_path / "home" / "data"))
    assert push(shell, wanted, manifests(wanted))[0].changes.files == ()


def test_what_a_machine_sends_cannot_leave_the_target(tmp_path: pathlib.Path) -> None:
    for path in ("../out", "/out", "a/../../out"):
        order = f'{{"do": "link", "path": "{path}", "value": "x"}}\n'.encode()
        with pytest.raises(Damaged, match="leads out"):
            Receiver(str(tmp_path / "here"), BytesIO(order), None).run()
    (tmp_path / "here" / "real").mkdir(parents=True)
    lines = (
        b'{"do": "mode", "path": "real/none/x", "kind": "d", "mode": 448, "value": ""}\n',
        b'{"do": "link", "path": "real/none", "value": "/tmp"}\n{"do": "delete", "path": "real/none/x"}\n',
    )
    with pytest.raises(FileNotFoundError):
        Receiver(str(tmp_path / "here"), BytesIO(lines[0]), None).run()
    with pytest.raises(Damaged, match="through a link"):
        Receiver(str(tmp_path / "here"), BytesIO(lines[1]), None).run()


def test_whoever_reads_what_is_there_of_a_large_file_says_that_it_lives(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "_BLOCK", 100)
    monkeypatch.setattr(sender, "_WORD_BYTES", 1000)
    monkeypatch.setattr(receiver, "_BLOCK", 100)
    (tmp_path / "large").write_bytes(os.urandom(5000))
    (tmp_path / "there").mkdir()
    with DigestCache() as cache:
        found = read(str(tmp_path / "large"), rules(), cache)
    entry = found.entries[""]
    target = tmp_path / "there" / "large"
    part = pathlib.Path(receiver._part(str(target), "", entry.value))
    part.write_bytes((tmp_path / "large").read_bytes()[:3500])
    there = There({}, {"": (3500, digest_of(str(part)))})
    packets = [*transfer._packets(sender.stream(found, changes(found.entries, there, False), there))]
    assert packets[:3] == [b'{"do": "wait"}\n'] * 3  # each at once
    assert len(b"".join(packets)) < 2500
    steps: list[int] = []
    Receiver(str(target), BytesIO(b"".join(packets)), None, lambda: steps.append(1)).run()
    assert len(steps) == 35
    assert target.read_bytes() == (tmp_path / "large").read_bytes()


def test_a_transfer_that_goes_on_is_not_taken_for_one_that_is_gone(tmp_path: pathlib.Path) -> None:
    lock = tmp_path / "lock"
    lock.touch()
    os.utime(lock, (1, 1))
    watched = remote._Watched()
    watched.lock = str(lock)
    try:
        watched.goes_on()
        assert lock.stat().st_mtime > 1
    finally:
        assert signal.alarm(0) > 0


def test_only_a_process_that_has_the_lock_is_its_holder(tmp_path: pathlib.Path) -> None:
    lock = tmp_path / "lock"
    lock.write_text("1")  # what an older version wrote into it
    hold = "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); input()"
    with lock.open("r+") as ours:
        assert remote._holder(ours) == 0
        command = [sys.executable, "-c", hold, str(lock)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            assert remote._holder(ours) == process.pid
            process.communicate()
        assert remote._holder(ours) == 0


def test_what_broke_off_on_its_way_back_leaves_nothing_here(
    shell: LocalShell, source: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver, "RESUMED_BYTES", 1)
    with DigestCache() as cache:
        found = read(str(source), rules(), cache)
    sent = b"".join(sender.stream(found, changes(found.entries, There(), False), There()))
    back = tmp_path / "back"
    with pytest.raises(Damaged, match="broke off"):
        Receiver(str(back), BytesIO(sent[: sent.index(b"mtime_ns") + 40]), None).run()
    assert [*back.iterdir()] == []


def test_what_was_brought_is_taken_back_and_nothing_else(
    shell: LocalShell, source: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / "there" / "before").mkdir(parents=True)
    (home / "there" / "a").write_text("mine")
    (source / "before").mkdir()
    (source / "new").mkdir()
    (source / "new" / "b").write_text("b")
    (source / "new" / "changed").write_text("c")
    (source / "link").symlink_to("new/b")
    wanted = [
        *mounts(source, "~/there"),
        *mounts(source, "~/made/for/it"),
        *mounts(source / "a", "~/one/file"),
    ]
    push(shell, wanted, manifests(wanted))
    (source / "link").unlink()
    push(shell, wanted, manifests(wanted))
    (home / "there" / "new" / "changed").write_text("by a program")
    (home / "made" / "for" / "it" / "own").write_text("by a program")
    monkeypatch.chdir(home)
    take_back(f"{home}/.clusterctl-node/sync")
    left = {str(path.relative_to(home)) for path in home.rglob("*") if ".clusterctl-node" not in str(path)}
    assert left == {
        *("there", "there/before", "there/a", "there/new", "there/new/changed"),
        *("made", "made/for", "made/for/it", "made/for/it/own"),
    }


def test_all_of_it_goes_where_nothing_was_before(
    shell: LocalShell, source: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    wanted = mounts(source, "~/there")
    push(shell, wanted, manifests(wanted))
    push(shell, wanted, manifests(wanted))
    take_back(str(tmp_path / "home" / ".clusterctl-node" / "sync"))
    assert not (tmp_path / "home" / "there").exists()
    take_back(str(tmp_path / "nowhere"))
