"""How the head sets up workers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from autoscaler.provider import (
    SPOT,
    Capabilities,
    LaunchRequest,
    Machine,
    MachineState,
    NodeType,
    NotFound,
    Offer,
    SetupError,
)
from clusterctl.head.worker_setup import WorkerSetup
from clusterctl.spec.load import load_text
from clusterctl.startup.order import JoinToken

SPEC = load_text(
    "cluster_name: c\nprovider: {type: local}\nhead_node_type: head\n"
    "available_node_types:\n  head: {}\n  w: {min_workers: 1, max_workers: 1}\n"
)


def test_a_setup_that_cannot_enter_the_machine_has_a_log_all_the_same(tmp_path: Path) -> None:
    def shell(machine: Machine) -> Any:
        raise NotFound("machine m was given back")

    provider = SimpleNamespace(shell=shell, head_extras=None, capabilities=Capabilities())
    kind = NodeType("w", {"CPU": 1})
    secret = tmp_path / "secret"
    secret.write_text("s")
    log = tmp_path / "setup-i.log"
    setup = WorkerSetup(SPEC, cast(Any, provider), [kind], "10.0.0.1:1", str(secret), str(tmp_path))
    with pytest.raises(SetupError, match="given back"):
        setup.run(Machine("m", MachineState.RUNNING, "w", {}), kind, "i", str(log))
    assert "machine m, instance i, node type w" in log.read_text()


def test_machines_that_join_by_themselves_are_not_entered(tmp_path: Path) -> None:
    def shell(machine: Machine) -> Any:
        raise AssertionError("nobody is asked in")

    provider = SimpleNamespace(shell=shell, head_extras=None, capabilities=Capabilities(machines_join=True))
    kind = NodeType("w", {"CPU": 1}, {"team": "x"})
    secret = tmp_path / "secret"
    secret.write_text("s\n")
    setup = WorkerSetup(SPEC, cast(Any, provider), [kind], "10.0.0.1:1", str(secret), str(tmp_path))
    request = LaunchRequest("t", kind, 2, Offer("a", SPOT), {}, ("i", "j"))
    tokens = setup.join_tokens(request)
    assert [JoinToken.parse(token) for token in tokens] == [
        JoinToken(
            address="10.0.0.1:1",
            secret="s",
            resources={"CPU": 1},
            labels={
                "ray.io/node-group": "w",
                "ray.io/availability-zone": "a",
                "ray.io/market-type": "spot",
                "team": "x",
            },
            node_type="w",
            instance_id=name,
        )
        for name in ("i", "j")
    ]
    assert setup.join_tokens(request) == tokens
    machine = Machine("m", MachineState.RUNNING, "w", {})
    log = tmp_path / "setup-i.log"
    setup.run(machine, kind, "i", str(log))
    setup.refresh(machine)
    setup.bring(machine)
    assert "it joins by itself" in log.read_text()
