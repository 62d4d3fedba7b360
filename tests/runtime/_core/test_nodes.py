from __future__ import annotations

import pytest

from runtime._core.nodes import (
    HEARTBEAT_TIMEOUT_S,
    RECONNECT_GRACE_S,
    RESTART_GRACE_S,
    NodeEvent,
    NodeState,
    verdict,
)


@pytest.mark.parametrize("state", list(NodeState))
def test_a_node_that_talks_is_fine(state: NodeState) -> None:
    assert verdict(100.0, state, 99.5, None) is None


@pytest.mark.parametrize("state", [NodeState.ALIVE, NodeState.DRAINING])
def test_silence_is_death_after_the_timeout(state: NodeState) -> None:
    assert verdict(HEARTBEAT_TIMEOUT_S - 0.1, state, 0.0, None) is None
    assert verdict(HEARTBEAT_TIMEOUT_S, state, 0.0, None) is NodeEvent.SILENT


def test_a_broken_connection_has_a_grace() -> None:
    assert verdict(RECONNECT_GRACE_S - 0.1, NodeState.ALIVE, 0.0, 0.0) is None
    assert verdict(RECONNECT_GRACE_S, NodeState.ALIVE, 0.0, 0.0) is NodeEvent.CONNECTION_LOST


def test_the_grace_is_longer_after_a_restart_of_the_control_store() -> None:
    assert verdict(RECONNECT_GRACE_S, NodeState.ALIVE, 0.0, 0.0, RESTART_GRACE_S) is None
    assert verdict(RESTART_GRACE_S, NodeState.ALIVE, 0.0, 0.0, RESTART_GRACE_S) is NodeEvent.CONNECTION_LOST


def test_a_draining_node_that_leaves_has_left() -> None:
    assert verdict(0.0, NodeState.DRAINING, 0.0, 0.0) is NodeEvent.LEFT


@pytest.mark.parametrize("lost_s", [None, 0.0])
def test_the_dead_stay_dead(lost_s: float | None) -> None:
    assert verdict(1e9, NodeState.DEAD, 0.0, lost_s) is None
