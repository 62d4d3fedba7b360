from __future__ import annotations

import pathlib
from dataclasses import replace

import pytest

from autoscaler.provider import Machine, MachineState, MachineTags
from clusterctl.commands import ssh_entries
from clusterctl.commands.opened_cluster import OpenedCluster
from clusterctl.errors import UsageProblem
from clusterctl.home import Home, new_record
from clusterctl.shell.ssh import SshShell
from clusterctl.shell.target import SshTarget
from clusterctl.spec.load import load_text

SPEC = (
    "cluster_name: own\nprovider: {type: ssh, head: 10.0.0.1}\nhead_node_type: h\n"
    "available_node_types: {h: {resources: {CPU: 1}}}\n"
)
HEAD = Machine("m-1", MachineState.RUNNING, "h", {MachineTags.ROLE: MachineTags.HEAD}, address="10.0.0.1")
WORKER = Machine(
    "m-2", MachineState.RUNNING, "w", {MachineTags.INSTANCE_ID: "w1"}, address="10.0.0.2", launched_s=1.0
)


class Provider:
    """Machines behind one jump host; or machines that are not entered by SSH."""

    def __init__(self, folder: pathlib.Path, is_ssh: bool = True) -> None:
        self._jump = SshTarget("9.9.9.9", str(folder / "known_hosts"))
        self._is_ssh = is_ssh

    def list(self) -> list[Machine]:
        return [WORKER, HEAD, replace(WORKER, id="m-3", state=MachineState.STOPPED)]

    def shell(self, machine: Machine) -> object:
        target = replace(self._jump, host=machine.address, jump=self._jump)
        return SshShell(target) if self._is_ssh else object()


@pytest.fixture
def opened(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> OpenedCluster:
    monkeypatch.setenv("HOME", str(tmp_path))
    home = Home.find({"CLUSTERCTL_HOME": str(tmp_path / "state")})
    opened = OpenedCluster(home, new_record(home, load_text(SPEC), "c.yaml"))
    home.write(opened.record)
    monkeypatch.setattr(OpenedCluster, "provider", lambda self: Provider(tmp_path))
    return opened


def test_the_head_has_the_clusters_name_and_workers_add_theirs(opened: OpenedCluster) -> None:
    lines = ssh_entries.entries(opened).splitlines()
    assert [line for line in lines if line.startswith("Host ")] == [
        "Host own",
        "Host own-w1",
        "Host own-jump",
    ]
    assert "  HostName 10.0.0.2" in lines


def test_machines_without_ssh_have_no_entries(
    opened: OpenedCluster, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OpenedCluster, "provider", lambda self: Provider(tmp_path, is_ssh=False))
    with pytest.raises(UsageProblem, match="are not entered by SSH"):
        ssh_entries.entries(opened)


def test_what_is_written_ends_with_the_cluster(
    opened: OpenedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    ssh_entries.write(opened)
    file = opened.home.folder("own") / "ssh_config"
    assert file.read_text() == ssh_entries.entries(opened)
    assert file.stat().st_mode & 0o777 == 0o600
    told = capsys.readouterr().err
    assert f"{file} has entries for `ssh own` and 1 worker" in told
    assert "put once at the top of ~/.ssh/config: Include ~/state/clusters/*/ssh_config" in told
    opened.home.forget("own")
    assert not file.exists()


@pytest.mark.parametrize(
    "line",
    ["Include ~/state/clusters/*/ssh_config", "include other {pattern}", '  Include "{pattern}"'],
)
def test_who_has_the_line_is_not_told_of_it(
    opened: OpenedCluster, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text(line.format(pattern=opened.home.ssh_configs) + "\nHost a\n")
    ssh_entries.write(opened)
    assert "Include" not in capsys.readouterr().err
