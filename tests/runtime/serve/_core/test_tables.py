"""The machines of replicas, deployments, applications and ingresses."""

from __future__ import annotations

from typing import Any

import pytest

from runtime._core.fsm import InvalidTransition, Machine, reachable_states, terminal_states
from runtime.serve._core import application, deployment, ingresses, replica
from runtime.serve._core.application import ApplicationInput, ApplicationState
from runtime.serve._core.deployment import DeploymentInput, DeploymentState
from runtime.serve._core.states import (
    ApplicationStatus,
    DeploymentStatus,
    DeploymentStatusTrigger,
    ProxyStatus,
    ReplicaState,
)


@pytest.mark.parametrize(
    ("initial", "states", "table", "ends"),
    [
        (ReplicaState.STARTING, ReplicaState, replica.TRANSITIONS, {ReplicaState.STOPPED}),
        (DeploymentStatus.UPDATING, DeploymentStatus, deployment.TRANSITIONS, set()),
        (ApplicationStatus.NOT_STARTED, ApplicationStatus, application.TRANSITIONS, set()),
        (ProxyStatus.STARTING, ProxyStatus, ingresses.TRANSITIONS, {ProxyStatus.DRAINED}),
    ],
)
def test_every_state_is_reached_and_left(initial: Any, states: Any, table: Any, ends: set[Any]) -> None:
    missing = {ReplicaState.RECOVERING} if states is ReplicaState else set()  # where a restart begins
    assert reachable_states(initial, table) == set(states) - missing
    assert terminal_states(states, table) == ends


def test_a_stopped_replica_does_nothing_more() -> None:
    machine = Machine("a", ReplicaState.STOPPED, replica.TRANSITIONS)
    for event in replica.ReplicaInput:
        with pytest.raises(InvalidTransition):
            machine.step(event)


@pytest.mark.parametrize(
    ("events", "status", "trigger"),
    [
        ("REACHED", "HEALTHY", "CONFIG_UPDATE_COMPLETED"),
        ("START_FAILED", "DEPLOY_FAILED", "REPLICA_STARTUP_FAILED"),
        ("CHECK_FAILED", "DEPLOY_FAILED", "HEALTH_CHECK_FAILED"),
        ("REACHED SCALED_UP", "UPSCALING", "AUTOSCALING"),
        ("REACHED SCALED_UP SCALED_DOWN", "DOWNSCALING", "AUTOSCALING"),
        ("REACHED SCALED_UP REACHED", "HEALTHY", "UPSCALE_COMPLETED"),
        ("REACHED SET_LOWER", "DOWNSCALING", "CONFIG_UPDATE_STARTED"),
        ("REACHED SET_LOWER REACHED", "HEALTHY", "DOWNSCALE_COMPLETED"),
        ("REACHED START_FAILED", "UNHEALTHY", "REPLICA_STARTUP_FAILED"),
        ("REACHED CHECK_FAILED", "UNHEALTHY", "HEALTH_CHECK_FAILED"),
        ("REACHED CHECK_FAILED SCALED_UP", "UNHEALTHY", "HEALTH_CHECK_FAILED"),
        ("REACHED CHECK_FAILED REACHED", "HEALTHY", "UNSPECIFIED"),
        ("START_FAILED DEPLOYED", "UPDATING", "CONFIG_UPDATE_STARTED"),
        ("REACHED DELETED", "UPDATING", "DELETING"),
    ],
)
def test_the_status_of_a_deployment(events: str, status: str, trigger: str) -> None:
    state = DeploymentState("a")
    for event in events.split():
        state.step(DeploymentInput[event], 0.0, f"message of {event}")
    assert (state.status, state.trigger) == (DeploymentStatus[status], DeploymentStatusTrigger[trigger])
    assert state.message == f"message of {event}"


@pytest.mark.parametrize(
    ("events", "status"),
    [
        (["REACHED", "REACHED"], "RUNNING"),
        (["REACHED", ""], "DEPLOYING"),
        (["REACHED", "REACHED SCALED_UP"], "RUNNING"),
        (["REACHED", "START_FAILED"], "DEPLOY_FAILED"),
        (["REACHED CHECK_FAILED", "START_FAILED"], "DEPLOY_FAILED"),
        (["REACHED CHECK_FAILED", ""], "UNHEALTHY"),
    ],
)
def test_an_application_follows_its_deployments(events: list[str], status: str) -> None:
    app = ApplicationState("app")
    app.step(ApplicationInput.DEPLOY, 0.0)
    deployments = {}
    for number, line in enumerate(events):
        state = deployments[f"d{number}"] = DeploymentState(f"d{number}")
        for event in line.split():
            state.step(DeploymentInput[event], 0.0, "because")
    app.follow(deployments, 1.0)
    assert app.status is ApplicationStatus[status]
    assert ("because" in app.message) == (status in ("DEPLOY_FAILED", "UNHEALTHY"))
    app.step(ApplicationInput.DELETE, 2.0)
    app.follow(deployments, 3.0)
    assert app.status is ApplicationStatus.DELETING
