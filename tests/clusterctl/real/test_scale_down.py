"""Real nodes are taken away with care: not while they hold something, not when they are needed after all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.clusterctl.cli import Cli, alive
from tests.polling import eventually, stays

SPEC = """\
cluster_name: down
provider: {{type: local}}
max_workers: 2
idle_timeout_minutes: 0.03
head_node_type: head
available_node_types:
  head:
    resources: {{CPU: 0}}
  worker:
    resources: {{CPU: 2}}
    min_workers: {least}
{extra}
"""

TASK = """
import os, time
import numpy as np
import runtime

runtime.init()

@runtime.remote
def work(number, until=None, size=1):
    open(f"{folder}/began{number}", "w").close()
    while until is not None and not os.path.exists(f"{folder}/{until}"):
        time.sleep(0.01)
    return np.ones(size)

def wait_for(name):
    while not os.path.exists(f"{folder}/{name}"):
        time.sleep(0.01)
"""

HOLDER = """
refs = [work.options(num_cpus=2).remote(n, "both", 1_000_000 if n else 1) for n in range(2)]
wait_for("end")
print("sum", runtime.get(refs[1]).sum())
"""

MOVED = """
@runtime.remote
def hold(number):
    node_id = runtime.get_runtime_context().get_node_id()
    try:
        os.close(os.open(f"{folder}/on-{node_id}", os.O_CREAT | os.O_EXCL))
        until = "end"
    except FileExistsError:
        until = "first"  # the second task of its node, whichever that is
    open(f"{folder}/began{number}", "w").close()
    wait_for(until)

refs = [hold.remote(number) for number in range(4)]
wait_for("more")
refs += [work.remote(4, "end"), work.remote(5, "end")]
print("done", len(runtime.get(refs)))
"""


class Rig:
    """A cluster, and a job at a time in a folder of its own."""

    def __init__(self, cli: Cli) -> None:
        self.cli = cli
        self.folder = cli.folder

    def up(self, least: int, extra: str = "") -> None:
        spec = self.cli.folder / "down.yaml"
        spec.write_text(SPEC.format(least=least, extra=extra))
        ran = self.cli.run("up", "-y", str(spec))
        assert ran.status == 0, ran.err

    def start(self, name: str, text: str) -> Any:
        self.folder = self.cli.folder / f"{name}-files"
        self.folder.mkdir()
        text = TASK.replace("{folder}", str(self.folder)) + text.replace("{folder}", str(self.folder))
        return self.cli.start("submit", self.cli.script(text, folder=name))

    def touch(self, name: str) -> None:
        (self.folder / name).touch()

    def has_begun(self, *numbers: int) -> bool:
        return eventually(lambda: all((self.folder / f"began{number}").exists() for number in numbers))

    def instances(self) -> dict[str, str]:
        """The machines that have not ended, with their states."""
        found = (self.cli.status().get("autoscaler") or {}).get("instances", [])
        return {one["id"]: one["state"] for one in found}

    def said(self, *words: str) -> bool:
        events = self.cli.status()["autoscaler"]["events"]
        return any(all(word in event["text"] for word in words) for event in events)


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    rig = Rig(Cli(tmp_path_factory.mktemp("cli")))
    rig.up(0)
    yield rig
    rig.cli.run("down", "-y", str(rig.cli.folder / "down.yaml"))


def test_a_node_with_the_only_copy_of_an_object_stays_and_an_idle_one_goes(rig: Rig) -> None:
    job = rig.start("holder", HOLDER)
    try:
        assert rig.has_begun(0, 1), rig.cli.status()
        two = set(rig.instances())
        assert len(two) == 2
        rig.touch("both")
        assert eventually(lambda: len(rig.instances()) == 1), rig.cli.status()
        (holder,) = rig.instances()
        (gone,) = two - {holder}
        assert rig.said(gone, "DRAINING", "idle for")
        assert stays(lambda: rig.instances() == {holder: "RUNNING"}, looks=10), rig.cli.status()
        (node,) = [node for node in alive(rig.cli.status()) if not node["is_head"]]
        assert node["idle_since_s"] == 0
        assert node["resources_available"] == node["resources_total"]
    finally:
        rig.touch("end")
        out, err = job.communicate(timeout=60)
    assert "sum 1000000.0" in out, err
    assert eventually(lambda: rig.instances() == {}), rig.cli.status()
    assert rig.said(holder, "TERMINATING", "drained: idle for")


def test_work_that_comes_while_a_node_drains_brings_it_back(rig: Rig) -> None:
    rig.up(0, "consolidation: {after_minutes: 0.02}")
    job = rig.start("moved", MOVED)
    try:
        assert rig.has_begun(0, 1, 2, 3), rig.cli.status()
        two = set(rig.instances())
        assert len(two) == 2
        rig.touch("first")  # one task is left on each node, and each has room for the other
        assert eventually(lambda: sorted(rig.instances().values()) == ["DRAINING", "RUNNING"]), (
            rig.cli.status()
        )
        (drains,) = [name for name, state in rig.instances().items() if state == "DRAINING"]
        assert rig.said(drains, "DRAINING", "has room on other nodes")
        assert stays(lambda: rig.instances().get(drains) == "DRAINING", looks=3), "its task is not killed"
        rig.touch("more")
        assert rig.has_begun(4, 5), rig.cli.status()
        assert rig.instances() == dict.fromkeys(two, "RUNNING")
        assert rig.said(drains, "RUNNING", "waiting work will use it")
    finally:
        for name in ("first", "more", "end"):
            rig.touch(name)
        out, err = job.communicate(timeout=60)
    assert "done 6" in out, err
    assert eventually(lambda: rig.instances() == {}), rig.cli.status()


def test_an_outdated_node_is_replaced_once(rig: Rig) -> None:
    rig.up(1)
    (old,) = rig.instances()
    rig.up(1, "worker_setup_commands: ['true']")

    def is_new() -> bool:
        return list(rig.instances().values()) == ["RUNNING"] and old not in rig.instances()

    assert eventually(is_new), rig.cli.status()
    assert rig.said(old, "DRAINING", "its configuration is outdated")
    (new,) = rig.instances()
    assert stays(lambda: rig.instances() == {new: "RUNNING"}, looks=5)
