"""Local machines: what is theirs alone. What every provider must do is in tests/contract."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import subprocess
import time
from collections.abc import Collection, Iterator

import pytest

from autoscaler.provider import (
    Capacity,
    LaunchRequest,
    MachineState,
    MachineTags,
    NodeType,
    NotFound,
    Offer,
)
from clusterctl import processes
from clusterctl.providers.local.provider import LocalMachines
from clusterctl.providers.ownership import Owner
from tests.polling import eventually

WORKER = NodeType("w", max_workers=9)


@pytest.fixture
def provider() -> Iterator[LocalMachines]:
    provider = LocalMachines("cluster-1", Owner("me"))
    yield provider
    provider.terminate([machine.id for machine in provider.list()])
    provider.cleanup()


def request(
    token: str, count: int = 1, kind: NodeType = WORKER, role: str = MachineTags.WORKER
) -> LaunchRequest:
    tags = {MachineTags.CLUSTER_NAME: "c", MachineTags.ROLE: role}
    return LaunchRequest(
        token, kind, count, Offer("local"), tags, tuple(f"{token}-{i}" for i in range(count))
    )


def root(provider: LocalMachines) -> pathlib.Path:
    return pathlib.Path(provider.settings()["root"])


def test_a_machine_is_a_process_with_private_folders(provider: LocalMachines) -> None:
    (machine,) = provider.create(request("t")).machines
    assert machine.state is MachineState.RUNNING
    folder = root(provider) / machine.id
    assert folder.stat().st_mode & 0o777 == 0o700
    assert len(processes.of_machines([machine.id])[machine.id]) == 1
    shell = provider.shell(machine)
    assert shell.run("echo $HOME $TMPDIR").output.split() == [f"{folder}/home", f"{folder}/tmp"]


def test_what_runs_on_a_machine_ends_with_it(provider: LocalMachines) -> None:
    one, two = provider.create(request("t", 2)).machines
    without_environment = "(env -i setsid /bin/sleep 300; true)"
    started = f"setsid sleep 300 & {without_environment} & trap '' TERM; nohup setsid sleep 301 &"
    provider.shell(one).run(started)
    assert eventually(lambda: len(sleeping(one.id)) == 3)
    pids = sleeping(one.id)
    provider.terminate([one.id])
    assert eventually(lambda: not any(_is_sleep(pid) for pid in pids))
    assert [machine.id for machine in provider.list()] == [two.id]
    assert not (root(provider) / one.id).exists()


def test_a_slow_look_at_the_processes_leaves_none(
    provider: LocalMachines, monkeypatch: pytest.MonkeyPatch
) -> None:
    (machine,) = provider.create(request("t")).machines
    late_s = 0.0
    look, now = processes.of_machines, time.monotonic

    def slow_look(ids: Collection[str]) -> dict[str, set[int]]:
        nonlocal late_s
        late_s = 10.0  # only the first is slow
        return look(ids)

    monkeypatch.setattr(processes, "of_machines", slow_look)
    monkeypatch.setattr(processes.time, "monotonic", lambda: now() + late_s)
    assert provider.terminate([machine.id]) == {machine.id: None}
    assert provider.list() == []


def sleeping(machine_id: str) -> list[int]:
    return [pid for pid in processes.of_machines([machine_id])[machine_id] if _is_sleep(pid)]


def _is_sleep(pid: int) -> bool:
    try:
        program = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]  # a zombie has none
    except (FileNotFoundError, ProcessLookupError):
        return False
    return program.endswith(b"sleep")


def test_capacity_gives_partial_success(provider: LocalMachines) -> None:
    scarce = NodeType("w", max_workers=9, node_config={"capacity": 2})
    result = provider.create(request("t", 3, scarce))
    assert len(result.machines) == 2
    assert [type(error) for error in result.errors] == [Capacity]
    assert isinstance(provider.create(request("u", 1, scarce)).errors[0], Capacity)
    assert len(provider.create(request("t", 3, scarce)).machines) == 2  # repeated: the same two


def test_a_machine_can_vanish(provider: LocalMachines) -> None:
    provider.create(request("t", 1, NodeType("w", max_workers=1, node_config={"vanish_after_s": 0.3})))
    assert eventually(lambda: provider.list() == [])


def test_a_listing_can_be_stale() -> None:
    provider = LocalMachines("cluster-2", Owner("me"), listing_lag_s=3600.0)
    (machine,) = provider.create(request("t")).machines
    assert provider.list() == []
    assert provider.capabilities.listing_lag_s == 3600.0
    assert provider.terminate([machine.id])[machine.id] is None
    provider.cleanup()


def test_a_killed_machine_is_stopped_and_can_be_started(provider: LocalMachines) -> None:
    (machine,) = provider.create(request("t", role=MachineTags.HEAD)).machines
    for pid in processes.of_machines([machine.id])[machine.id]:
        os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: provider.list()[0].state is MachineState.STOPPED)
    provider.start([machine.id])
    assert provider.list()[0].state is MachineState.RUNNING
    provider.stop([machine.id])
    assert provider.list()[0].state is MachineState.STOPPED


def test_a_machine_whose_creator_was_killed_before_it_booted_is_stopped_and_can_be_started(
    provider: LocalMachines,
) -> None:
    (machine,) = provider.create(request("t", role=MachineTags.HEAD)).machines
    folder = root(provider) / machine.id
    provider.stop([machine.id])
    (folder / "init.json").unlink()
    assert provider.list()[0].state is MachineState.PENDING, "its creator, this process, lives"
    (folder / "creator.json").write_text('{"pid": 1, "start_ticks": -1}')
    assert provider.list()[0].state is MachineState.STOPPED
    provider.start([machine.id])
    assert provider.list()[0].state is MachineState.RUNNING


@pytest.mark.parametrize(("role", "stays"), [(MachineTags.HEAD, True), (MachineTags.WORKER, False)])
def test_a_machine_powers_off_when_its_daemon_ends(provider: LocalMachines, role: str, stays: bool) -> None:
    (machine,) = provider.create(request("t", role=role)).machines
    record = '{\\"pid\\": $!, \\"start_ticks\\": $(cut -d" " -f22 /proc/$!/stat)}'
    started = (
        f'mkdir $CLUSTERCTL_SESSION_DIR; sleep 300 & echo "{record}" > $CLUSTERCTL_SESSION_DIR/daemon.json'
    )
    started += "; echo $!"
    daemon = int(provider.shell(machine).run(started).output)
    provider.shell(machine).run("setsid sleep 300 &")
    os.kill(daemon, signal.SIGKILL)
    assert eventually(lambda: not processes.of_machines([machine.id])[machine.id])
    assert eventually(lambda: (root(provider) / machine.id).exists() is stays)


def test_clusters_are_found_by_tags_and_owner(provider: LocalMachines) -> None:
    provider.create(request("t"))
    assert list(LocalMachines("x", Owner("me")).clusters("c")) == ["cluster-1"]
    assert list(LocalMachines("x", Owner("you")).clusters("c")) == []
    assert LocalMachines("x", Owner("me")).list() == []


def test_cleanup_leaves_nothing_and_spares_others(provider: LocalMachines) -> None:
    provider.create(request("t"))
    provider.cleanup()
    assert len(provider.list()) == 1
    draft = root(provider) / ".abc.999999999"
    draft.mkdir()
    provider.terminate([machine.id for machine in provider.list()])
    provider.cleanup()
    assert not root(provider).exists()


def test_cleanup_removes_the_draft_of_a_process_that_was_killed_and_not_waited_for(
    provider: LocalMachines,
) -> None:
    creator = subprocess.Popen(["sleep", "600"])
    draft = root(provider) / f".abc.{creator.pid}"
    draft.mkdir(parents=True)
    provider.cleanup()
    assert draft.exists()
    creator.kill()
    assert eventually(lambda: not processes.runs(creator.pid))
    provider.cleanup()
    assert not root(provider).exists()
    creator.wait()


def test_who_is_killed_while_a_machine_is_removed_leaves_none_that_nobody_lists(
    provider: LocalMachines, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(folder: pathlib.Path, ignore_errors: bool = False) -> None:
        (folder / "machine.json").unlink(missing_ok=True)  # as far as it came
        if folder.exists():
            raise KeyboardInterrupt

    provider.create(request("t"))
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            provider.terminate([machine.id for machine in provider.list()])
    assert provider.list() == []
    assert [path.name[0] for path in root(provider).iterdir()] == ["."]
    provider.cleanup()
    assert not root(provider).exists()


def test_check_finds_what_would_fail(provider: LocalMachines) -> None:
    assert provider.check([WORKER]) == []
    (problem,) = provider.check([NodeType("w", node_config={"capcity": 1})])
    assert "capcity" in problem.what
    (problem,) = LocalMachines("c", Owner("me"), root="/tmp/" + "x" * 80).check([])
    assert "too long" in problem.what
    assert LocalMachines("c", Owner("me"), root="/proc/nowhere").check([]) or os.getuid() == 0


def test_a_machine_that_is_gone(provider: LocalMachines) -> None:
    (machine,) = provider.create(request("t")).machines
    assert provider.terminate([machine.id]) == {machine.id: None}
    assert isinstance(provider.terminate([machine.id])[machine.id], NotFound)
    with pytest.raises(NotFound):
        provider.shell(machine)
