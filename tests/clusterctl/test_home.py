"""The operator's state folder."""

from __future__ import annotations

import pathlib
import subprocess
import sys

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
    home.set_current("c")
    assert home.resolve(None).name == "c"
    assert home.resolve("c").name == "c"
    for name in ("d", "../c", "a/b"):
        with pytest.raises(NotFound) as missing:
            home.resolve(name)
        assert "Known clusters: c." in missing.value.hint
    home.forget("c")
    assert home.current() == ""


def test_owners_differ_by_folder(tmp_path: pathlib.Path) -> None:
    one, two = (Home.find({"CLUSTERCTL_HOME": str(tmp_path / name)}) for name in "ab")
    assert one.owner != two.owner
    assert one.owner == Home.find({"CLUSTERCTL_HOME": str(tmp_path / "a")}).owner


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
