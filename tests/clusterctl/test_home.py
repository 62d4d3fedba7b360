"""The operator's state folder."""

from __future__ import annotations

import errno
import fcntl
import os
import pathlib
import subprocess
import sys
import threading

import pytest

from clusterctl.errors import Busy, CliError, ExitCode, NotFound, UsageProblem
from clusterctl.home import Home, new_record, spec_hash
from clusterctl.spec.load import load_text

SPEC = load_text(
    "cluster_name: c\nprovider: {type: local}\nhead_node_type: h\n"
    "available_node_types: {h: {resources: {CPU: 1}}}\n"
)


@pytest.fixture
def home(tmp_path: pathlib.Path) -> Home:
    return Home.find({"CLUSTERCTL_HOME": str(tmp_path / "h")})


def test_it_is_private(home: Home) -> None:
    assert home.root.stat().st_mode & 0o777 == 0o700
    path = pathlib.Path(home.new_secret("c"))
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(home.secret("c")) == 64
    assert home.new_secret("c")
    assert home.secret("c") != home.new_secret("c")


def test_it_is_below_home_by_default(tmp_path: pathlib.Path) -> None:
    assert Home.find({"HOME": str(tmp_path)}).root == tmp_path / ".clusterctl"


@pytest.mark.parametrize("environ", [{}, {"HOME": ""}, {"CLUSTERCTL_HOME": "", "HOME": ""}])
def test_without_a_home_it_says_what_to_set(environ: dict[str, str]) -> None:
    with pytest.raises(UsageProblem, match="CLUSTERCTL_HOME nor HOME"):
        Home.find(environ)


@pytest.mark.parametrize("place", ["/proc/x", "/dev/null/x"])
def test_a_place_that_cannot_be_written(place: str) -> None:
    with pytest.raises(UsageProblem, match="cannot be used"):
        Home.find({"CLUSTERCTL_HOME": place})


def test_records_survive(home: Home) -> None:
    record = new_record(home, SPEC, "c.yaml")
    home.write(record)
    again = home.read("c")
    assert again == record
    assert again is not None
    assert spec_hash(again.spec) == record.spec_hash
    assert home.names() == ["c"]
    home.forget("c")
    assert home.read("c") is None


def test_a_damaged_record_says_what_to_do(home: Home) -> None:
    home.write(new_record(home, SPEC, "c.yaml"))
    (home.folder("c") / "cluster.json").write_text("{")
    with pytest.raises(CliError, match="damaged"):
        home.read("c")


def test_resolving(home: Home, tmp_path: pathlib.Path) -> None:
    with pytest.raises(NotFound, match="no current cluster"):
        home.resolve(None)
    home.write(new_record(home, SPEC, "c.yaml"))
    assert home.resolve(None).name == "c", "it is the only one"
    assert home.resolve("c").name == "c"
    for name in ("d", "../c", "a/b"):
        with pytest.raises(NotFound) as missing:
            home.resolve(name)
        assert "Known clusters: c." in missing.value.hint
    home.forget("c")
    assert home.current().name == ""


def test_of_several_clusters_none_is_guessed(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        record = new_record(home, SPEC, "c.yaml")
        record.name = name
        home.write(record)
    monkeypatch.setattr("os.getsid", lambda pid: os.getpid())  # there is no terminal
    with pytest.raises(NotFound, match="several are known") as several:
        home.resolve(None)
    assert "Known clusters: a, b." in several.value.hint
    monkeypatch.setenv("CLUSTERCTL_CLUSTER", "b")
    assert home.resolve(None).name == "b"
    assert home.resolve("a").name == "a"
    monkeypatch.setenv("CLUSTERCTL_CLUSTER", "gone")
    with pytest.raises(NotFound, match="no cluster 'gone', which CLUSTERCTL_CLUSTER names"):
        home.resolve(None)


def test_what_machines_still_have_of_a_cluster_outlives_its_life(home: Home) -> None:
    home.write(new_record(home, SPEC, "c.yaml"))
    (home.folder("c") / "let_in").write_text("10.0.0.2\n")
    home.renew("c")
    assert home.read("c") is None
    assert [path.name for path in home.folder("c").iterdir()] == ["let_in"]
    home.forget("c")
    assert not home.folder("c").exists()


def test_who_has_patience_waits_for_another_command(home: Home) -> None:
    order = []

    def wait() -> None:
        with home.locked("c", "autostop", patience_s=60):
            order.append("second")

    with home.locked("c", "up"):
        waiting = threading.Thread(target=wait)
        waiting.start()
        with pytest.raises(Busy, match="is being changed by `clusterctl up`"), home.locked("c", "down"):
            pass
        order.append("first")
    waiting.join()
    assert order == ["first", "second"]


def test_only_one_command_changes_a_cluster(home: Home) -> None:
    program = (
        "import sys\nfrom pathlib import Path\nfrom clusterctl.home import Home\n"
        "with Home(Path(sys.argv[1])).locked('c', 'up'):\n    print('held', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", program, str(home.root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        message = f"`clusterctl up` \\(process {holder.pid}\\)"
        with (
            pytest.raises(Busy, match=message) as busy,
            home.locked("c", "down"),
        ):
            pass
        assert busy.value.exit_code is ExitCode.BUSY
        with home.locked("other", "up"):
            pass
        holder.communicate()
    with home.locked("c", "down"):
        pass


def test_the_command_that_brings_a_cluster_up_names_that_cluster(home: Home) -> None:
    assert new_record(home, SPEC, "/a b/c.yaml").up_command == "clusterctl up '/a b/c.yaml'"
    assert new_record(home, SPEC, "/c.yaml", is_renamed=True).up_command == "clusterctl up /c.yaml -n c"


ON_A_FULL_DISK = """
import resource, sys
from clusterctl.errors import CliError
from clusterctl.home import Home

home = Home.find()
record = home.read("c")
resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))  # whatever is written fails
with Home.find().locked("c", "down"):
    try:
        home.write(record)
    except CliError as error:
        print(error)
    home.forget("c")
"""


def test_a_full_disk_keeps_no_cluster_from_being_ended(home: Home, tmp_path: pathlib.Path) -> None:
    home.write(new_record(home, SPEC, "c.yaml"))
    ran = subprocess.run(
        [sys.executable, "-c", ON_A_FULL_DISK],
        env={"CLUSTERCTL_HOME": str(home.root), "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert f"{home.folder('c')}/cluster.json cannot be written: File too large" in ran.stdout, ran.stderr
    assert (ran.returncode, home.names()) == (0, [])


def test_what_cannot_be_written_leaves_the_old_and_no_draft(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = new_record(home, SPEC, "c.yaml")
    home.write(record)
    before = sorted(home.folder("c").rglob("*"))

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    record.state = "UP"
    with pytest.raises(CliError, match=r"cluster\.json cannot be written: No space left on device"):
        home.write(record)
    assert sorted(home.folder("c").rglob("*")) == before
    found = home.read("c")
    assert found is not None
    assert found.state == "STARTING"


def test_to_ask_who_changes_a_cluster_keeps_no_command_away(home: Home) -> None:
    assert home.changed_by("c") == ""
    with home.locked("c", "up"):
        assert home.changed_by("c") == f"`clusterctl up` (process {os.getpid()})"
        with pytest.raises(Busy, match="being changed by `clusterctl up`"), home.locked("c", "down"):
            pass
    assert home.changed_by("c") == ""
    descriptor = os.open(home.root / "locks" / "c", os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)  # a doctor that looks just now
    threading.Timer(0.05, os.close, (descriptor,)).start()
    with home.locked("c", "up"):
        assert "up" in home.changed_by("c")
