"""Workers' machines that cost shut themselves down when their head is gone."""

from __future__ import annotations

import io
import pathlib
import socket
from collections.abc import Iterator
from dataclasses import replace

import pytest

from autoscaler.provider import Machine, MachineState, NodeType
from clusterctl.launcher import setup
from clusterctl.launcher.node_look import Found
from clusterctl.launcher.runtimes import engine_nodes
from clusterctl.launcher.setup import NodeFacts
from clusterctl.launcher.steps import Runner, SetupLog
from clusterctl.shell.connections import CONNECTIONS
from clusterctl.shell.ssh import SshShell
from clusterctl.shell.target import SshTarget
from clusterctl.spec.load import load_text
from tests.polling import eventually
from tests.testbed.hosts import OPERATOR
from tests.testbed.sshd import USER, SshTestbed, missing

SPEC = load_text(
    "cluster_name: c\nprovider: {type: local}\nhead_node_type: head\n"
    "available_node_types: {head: {}, w: {max_workers: 1}}\n"
)
WORKER = Machine("m", MachineState.RUNNING, "w", {}, "5.6.7.8")
FAKE = '#!/bin/sh\necho "$(id -un) $*" >> /run/shutdown-said\n'


def facts_of(head: str, holds_lease: bool) -> NodeFacts:
    facts = engine_nodes.worker_facts(SPEC, WORKER, NodeType("w"), "w-1", head, "/secret")
    return replace(facts, is_cloud=holds_lease)


def test_only_machines_that_cost_hold_a_lease_and_they_do_before_anything_slow() -> None:
    facts = facts_of("1.2.3.4:5", False)
    assert "lease" not in [s.name for s in (*setup.steps_before(facts), *setup.steps(facts, Found()))]
    facts = facts_of("1.2.3.4:5", True)
    assert [step.name for step in setup.steps_before(facts)] == ["lease"]
    names = [step.name for step in setup.steps(facts, Found())]
    assert names[-2:] == ["lease", "start"], "a machine that was restarted meanwhile has no guard"


@pytest.fixture
def bed(tmp_path: pathlib.Path) -> Iterator[SshTestbed]:
    with SshTestbed(1, tmp_path) as bed, bed.inside():
        yield bed
        CONNECTIONS.close_all()


@pytest.mark.skipif(bool(missing()), reason=missing() or "there can be hosts here")
def test_a_worker_without_its_head_shuts_its_machine_down(
    bed: SshTestbed, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup, "ORPHAN_MINUTES", 0.02)
    host = bed.hosts[0]
    host.run(
        ["sh", "-c", f"cat > /usr/local/sbin/shutdown <<'END'\n{FAKE}END\nchmod 755 /usr/local/sbin/shutdown"]
    )
    shell = SshShell(SshTarget(host.address, str(tmp_path / "known"), user=USER, key_file=str(bed.key_file)))

    def said() -> str:
        return host.run(["sh", "-c", "cat /run/shutdown-said 2>/dev/null || true"])

    with socket.create_server((OPERATOR, 0), backlog=1000) as head:
        wanted = setup.steps_before(facts_of(f"{OPERATOR}:{head.getsockname()[1]}", True))
        log = SetupLog(io.StringIO())
        for _ in range(2):  # a repeated set-up adds no second guard
            Runner(shell, shell, log, {}).run(wanted)
        assert eventually(lambda: host.run(["pgrep", "-fc", "lease_guard.py"]).strip() == "1")
        for _ in range(5):
            stream, _ = head.accept()
            stream.close()
        assert set(said().splitlines()) == {"root -c"}  # the switch of the first boot
    assert eventually(lambda: "root -h now\n" in said())
