"""The status of an application, which follows from those of its deployments."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from runtime._core.fsm import Edge, Machine, Transitions
from runtime.serve._core.deployment import DeploymentState
from runtime.serve._core.states import ApplicationStatus, DeploymentStatus

N, D, F, R, X, E = (
    ApplicationStatus.NOT_STARTED,
    ApplicationStatus.DEPLOYING,
    ApplicationStatus.DEPLOY_FAILED,
    ApplicationStatus.RUNNING,
    ApplicationStatus.UNHEALTHY,
    ApplicationStatus.DELETING,
)


class ApplicationInput(Enum):
    DEPLOY = "deployed"
    RUNS = "every deployment serves"
    FAILS = "a deployment could not be deployed"
    AILS = "a deployment is unhealthy"
    DELETE = "deleted"


I = ApplicationInput  # noqa: E741
TRANSITIONS: Final[Transitions[ApplicationStatus, ApplicationInput]] = {
    **{(state, I.DEPLOY): Edge(D, "its deployments are updated") for state in ApplicationStatus},
    **{(state, I.RUNS): Edge(R, "every deployment is healthy or scales") for state in (D, F, R, X)},
    **{(state, I.FAILS): Edge(F, "a deployment failed to deploy") for state in (D, F, R, X)},
    **{(state, I.AILS): Edge(X, "a deployment is unhealthy") for state in (D, F, R, X)},
    **{(state, I.DELETE): Edge(E, "somebody deleted it") for state in (N, D, F, R, X, E)},
}


class ApplicationState:
    """The status of one application with its message."""

    def __init__(self, name: str) -> None:
        self.machine: Machine[ApplicationStatus, ApplicationInput] = Machine(name, N, TRANSITIONS)
        self.message = ""

    @property
    def status(self) -> ApplicationStatus:
        return self.machine.state

    def step(self, event: ApplicationInput, now: float, message: str = "") -> None:
        """See `Machine.step`."""
        self.machine.step(event, now)
        self.message = message

    def follow(self, deployments: Mapping[str, DeploymentState], now: float) -> None:
        """Takes the status that follows from those of its deployments."""
        if self.status in (N, E):
            return
        failed = _of(deployments, DeploymentStatus.DEPLOY_FAILED)
        unhealthy = _of(deployments, DeploymentStatus.UNHEALTHY)
        updating = {name: state.message for name, state in deployments.items() if state.is_updating}
        if failed:
            event, reasons = I.FAILS, failed
        elif unhealthy:
            event, reasons = I.AILS, unhealthy
        elif updating:
            event, reasons = I.DEPLOY, {name: text for name, text in updating.items() if text}
        else:
            event, reasons = I.RUNS, {}
        message = "\n".join(f"Deployment {name}: {text}" for name, text in reasons.items())
        if self.machine.can(event):
            self.step(event, now, message)


def _of(deployments: Mapping[str, DeploymentState], status: DeploymentStatus) -> dict[str, str]:
    return {name: state.message for name, state in deployments.items() if state.status is status}
