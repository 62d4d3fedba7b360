"""Files brought to a machine and back, over each kind of shell."""

from __future__ import annotations

import errno
import hashlib
import os
import pathlib
import random
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from autoscaler.provider import CommandResult, Shell, ShellError
from clusterctl.sync import manifest, receiver
from clusterctl.sync.rules import rules
from clusterctl.sync.transfer import Done, Mount, SyncError, manifests, pull, push
from tests.contract.test_shell_contract import new_shell, shell  # noqa: F401

pytestmark = pytest.mark.parametrize("new_shell", ["local", "ssh"], indirect=True, scope="module")


class Counting:
    """A shell that counts what it is asked and what passes through it; `cut_after` bytes the transfer breaks."""

    def __init__(self, inner: Shell) -> None:
        self.inner = inner
        self.runs = 0
        self.sent = 0
        self.cut_after: int | None = None

    def run(self, command: str, *, stdin: Iterable[bytes] | None = None, **options: Any) -> CommandResult:
        self.runs += 1
        return self.inner.run(command, stdin=None if stdin is None else self._counted(stdin), **options)

    def _counted(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        for block in blocks:
            self.sent += len(block)
            if self.cut_after is not None and self.sent > self.cut_after:
                raise ShellError("the cable was pulled")
            yield block

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@pytest.fixture
def counting(shell: Shell) -> Counting:  # noqa: F811
    return Counting(shell)


@pytest.fixture
def source(tmp_path: pathlib.Path) -> pathlib.Path:
    root = tmp_path / "source"
    (root / "deep" / "er").mkdir(parents=True)
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text("never")
    (root / ".gitignore").write_text("*.tmp\n/build\n")
    (root / "build").mkdir()
    (root / "build" / "out").write_text("x")
    (root / "deep" / "x.tmp").write_text("x")
    (root / "deep" / "er" / "data.bin").write_bytes(bytes(range(256)) * 10)
    (root / "run.sh").write_text("echo ran\n")
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to("deep/er/data.bin")
    (root / "nowhere").symlink_to("not/there")
    (root / "é \n'odd'").write_text("odd")
    return root


def sync(shell: Any, source: pathlib.Path, target: str = "~/data", **options: Any) -> Done:  # noqa: F811
    mounts = [Mount(target, str(source), rules(["*.log"]))]
    return push(shell, mounts, manifests(mounts), **options)[0]


def tree(shell: Shell, folder: str = "data") -> Mapping[str, str]:  # noqa: F811
    found = shell.run(f"cd {folder} && find . -printf '%P\\0%y%m\\0'").output.split("\0")
    return dict(zip(found[::2], found[1::2], strict=False))


def test_what_travels_and_what_does_not(counting: Counting, source: pathlib.Path) -> None:
    (source / "x.log").write_text("")
    sync(counting, source)
    there = tree(counting.inner)
    names = (".gitignore", "deep", "deep/er", "deep/er/data.bin", "run.sh", "link", "nowhere", "é \n'odd'")
    assert {*there} == {"", *names}
    assert there["run.sh"] == "f755"
    assert counting.inner.run("readlink data/link data/nowhere").output == "deep/er/data.bin\nnot/there\n"
    assert counting.inner.run("data/run.sh").output == "ran\n"


def test_nothing_changed_is_one_round_trip(counting: Counting, source: pathlib.Path) -> None:
    sync(counting, source)
    counting.runs = counting.sent = 0
    assert sync(counting, source).changes.files == ()
    assert counting.runs == 1
    assert counting.sent < 1000


def test_only_what_changed_travels(counting: Counting, source: pathlib.Path) -> None:
    (source / "big").write_bytes(random.randbytes(300_000))
    sync(counting, source)
    (source / "run.sh").write_text("echo again\n")
    counting.sent = 0
    done = sync(counting, source)
    assert [entry.path for entry in done.changes.files] == ["run.sh"]
    assert counting.sent < 10_000
    assert counting.inner.run("data/run.sh").output == "again\n"


def test_deletions_leave_alone_what_the_machine_wrote(counting: Counting, source: pathlib.Path) -> None:
    sync(counting, source)
    counting.inner.run("echo mine > data/deep/own; echo mine > data/own")
    (source / "deep" / "er" / "data.bin").unlink()
    (source / "deep" / "er").rmdir()
    (source / "link").unlink()
    (source / "nowhere").unlink()
    sync(counting, source)
    there = tree(counting.inner)
    assert {"deep/own", "own"} <= {*there}
    assert not {"deep/er", "deep/er/data.bin", "link", "nowhere"} & {*there}


def test_kinds_and_permissions_change(counting: Counting, source: pathlib.Path) -> None:
    sync(counting, source)
    (source / "run.sh").chmod(0o500)
    (source / "link").unlink()
    (source / "link").write_text("a file now")
    (source / "deep" / "er" / "data.bin").unlink()
    (source / "deep" / "er" / "data.bin").mkdir()
    (source / "deep" / "er" / "data.bin").chmod(0o700)
    done = sync(counting, source)
    assert [entry.path for entry in done.changes.files] == ["link"]
    there = tree(counting.inner)
    assert (there["run.sh"], there["link"][0], there["deep/er/data.bin"]) == ("f500", "f", "d700")


def test_protected_folders_stay_so_and_can_be_changed(counting: Counting, source: pathlib.Path) -> None:
    (source / "deep").chmod(0o555)
    sync(counting, source)
    assert tree(counting.inner)["deep"] == "d555"
    (source / "deep").chmod(0o755)
    (source / "deep" / "new").write_text("n")
    (source / "deep").chmod(0o555)
    sync(counting, source)
    assert tree(counting.inner)["deep"] == "d555"
    assert counting.inner.run("cat data/deep/new; chmod -R u+w data").output == "n"


def test_what_was_altered_there_is_put_right(counting: Counting, source: pathlib.Path) -> None:
    sync(counting, source)
    counting.inner.run("echo other > data/run.sh; rm data/link")
    done = sync(counting, source)
    assert [entry.path for entry in (*done.changes.files, *done.changes.links)] == ["run.sh", "link"]
    assert counting.inner.run("cat data/run.sh").output == "echo ran\n"


def test_a_large_file_goes_on_where_it_broke_off(
    counting: Counting, source: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = receiver.RESUMED_BYTES + 5_000_000
    content = random.randbytes(size)
    (source / "large").write_bytes(content)
    counting.cut_after = 20_000_000
    with pytest.raises(ShellError, match="cable"):
        sync(counting, source)
    assert counting.inner.run("ls -A data").output.count(".part") == 1
    counting.cut_after, counting.sent = None, 0
    sync(counting, source)
    assert 0 < counting.sent < size - 15_000_000
    assert counting.inner.run("ls -A data").output.count(".part") == 0
    there = counting.inner.run("sha256sum < data/large").output.split()[0]
    assert there == hashlib.sha256(content).hexdigest()


def test_a_transfer_whose_sender_is_silent_gives_way(counting: Counting, source: pathlib.Path) -> None:
    sync(counting, source)
    hold = (
        "import fcntl, os, time\nlock = open('.clusterctl-node/sync/' + next(n for n in "
        "os.listdir('.clusterctl-node/sync') if n.endswith('.lock')), 'r+')\nfcntl.lockf(lock, fcntl.LOCK_EX)\n"
        "os.utime(lock.name, (1, 1))\n"
        "print('held', flush=True)\ntime.sleep(600)\n"
    )
    held = threading.Event()
    holder = threading.Thread(
        target=counting.inner.run,
        args=('exec python3 -c "$HOLD"',),
        kwargs={"env": {"HOLD": hold}, "on_output": lambda _: held.set(), "timeout_s": 120.0},
    )
    holder.start()
    assert held.wait(60)
    (source / "run.sh").write_text("echo new\n")
    assert len(sync(counting, source).changes.files) == 1
    holder.join()


def test_what_is_left_of_a_broken_transfer_goes_with_the_next(
    counting: Counting, source: pathlib.Path
) -> None:
    with (source / "large").open("wb") as file:
        file.truncate(receiver.RESUMED_BYTES)
    counting.cut_after = 5_000_000
    with pytest.raises(ShellError):
        sync(counting, source)
    (source / "large").write_text("small now")
    counting.cut_after = None
    sync(counting, source)
    assert counting.inner.run("ls -A data").output.count(".part") == 0
    assert counting.inner.run("cat data/large").output == "small now"


def test_two_transfers_to_one_target_take_turns(counting: Counting, source: pathlib.Path) -> None:
    (source / "big").write_bytes(random.randbytes(3_000_000))
    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(sync, Counting(counting.inner), source) for _ in range(4)]:
            future.result()
    assert sync(counting, source).changes.files == ()
    assert counting.inner.run("ls -A data").output.count(".part") == 0


def test_a_single_file(counting: Counting, source: pathlib.Path) -> None:
    sync(counting, source / "run.sh", "~/there/it")
    sync(counting, source / "run.sh", "~/folder/")
    assert counting.inner.run("there/it; folder/run.sh").output == "ran\nran\n"


def test_what_cannot_be_is_said(counting: Counting, source: pathlib.Path) -> None:
    with pytest.raises(SyncError, match=r"there is no .*missing"):
        sync(counting, source / "missing")
    with pytest.raises(SyncError, match="/proc/no"):
        sync(counting, source, "/proc/no/such")
    counting.inner.run("mkdir -p data/run.sh; touch data/run.sh/mine")
    with pytest.raises(SyncError, match=r"run\.sh: Directory not empty"):
        sync(counting, source)


def test_there_and_back(counting: Counting, source: pathlib.Path, tmp_path: pathlib.Path) -> None:
    sync(counting, source)
    counting.inner.run("mkdir data/.git; touch data/.git/x; head -c 3000000 /dev/urandom > data/big")
    back = tmp_path / "back"
    done = pull(counting, "~/data", str(back))
    assert done.entries == 10
    assert {str(p.relative_to(back)) for p in back.rglob("*")} == {*tree(counting.inner)} - {
        "",
        ".git",
        ".git/x",
    }
    assert (back / "link").is_symlink()
    assert os.stat(back / "run.sh").st_mode & 0o777 == 0o755
    (back / "own").write_text("stays")
    counting.inner.run("echo echo new > data/run.sh")
    assert [entry.path for entry in pull(counting, "~/data", str(back)).changes.files] == ["run.sh"]
    assert (back / "run.sh").read_text() == "echo new\n"
    assert (back / "own").exists()


def test_only_what_comes_back_is_looked_at_here(
    counting: Counting, source: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync(counting, source)
    back = tmp_path / "back"
    pull(counting, "~/data", str(back))
    (back / "own").mkdir()
    (back / "own" / "file").write_text("of the user")
    (back / "link").unlink()
    (back / "link").symlink_to("own")
    (back / "run.sh").write_text("of another size")
    os.rename(back / "deep", back / "elsewhere")
    (back / "deep").symlink_to("elsewhere")
    looked_at: list[str] = []

    def digest_of(path: str) -> str:
        looked_at.append(os.path.relpath(path, back))
        raise PermissionError(errno.EACCES, "Permission denied", path)

    with monkeypatch.context() as patch:
        patch.setattr(manifest, "digest_of", digest_of)
        done = pull(counting, "~/data", str(back))
    assert looked_at == [".gitignore", "é \n'odd'"]
    assert {entry.path for entry in done.changes.files} == {*looked_at, "run.sh", "deep/er/data.bin"}
    assert (back / "deep" / "er" / "data.bin").read_bytes() == (source / "deep/er/data.bin").read_bytes()
    assert not (back / "deep").is_symlink()
    assert os.readlink(back / "link") == "deep/er/data.bin"
    assert (back / "own" / "file").read_text() == "of the user"


def test_a_folder_does_not_replace_a_file_here(
    counting: Counting, source: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    sync(counting, source)
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(SyncError, match="is a file, and ~/data is a folder there"):
        pull(counting, "~/data", str(tmp_path / "mine"))
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_file_comes_back(counting: Counting, source: pathlib.Path, tmp_path: pathlib.Path) -> None:
    sync(counting, source)
    pull(counting, "data/run.sh", f"{tmp_path}/")
    assert (tmp_path / "run.sh").read_text() == "echo ran\n"
    with pytest.raises(SyncError, match=r"not-there: No such file"):
        pull(counting, "data/not-there", str(tmp_path / "x"))
