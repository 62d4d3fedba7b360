"""The status of a deployment, and why it has it."""

from __future__ import annotations

from enum import Enum
from typing import Final

from runtime._core.fsm import Edge, Machine, Transitions
from runtime.serve._core.states import DeploymentStatus, DeploymentStatusTrigger

U, H, X, F, P, D = (
    DeploymentStatus.UPDATING,
    DeploymentStatus.HEALTHY,
    DeploymentStatus.UNHEALTHY,
    DeploymentStatus.DEPLOY_FAILED,
    DeploymentStatus.UPSCALING,
    DeploymentStatus.DOWNSCALING,
)


class DeploymentInput(Enum):
    DEPLOYED = "new code or options"
    REACHED = "as many replicas as wanted run"
    SCALED_UP = "the load asks for more"
    SCALED_DOWN = "the load asks for fewer"
    SET_HIGHER = "num_replicas was raised"
    SET_LOWER = "num_replicas was lowered"
    START_FAILED = "replicas do not start"
    CHECK_FAILED = "replicas fail"
    DELETED = "deleted"


I = DeploymentInput  # noqa: E741
_SCALES = {I.SCALED_UP: P, I.SCALED_DOWN: D, I.SET_HIGHER: P, I.SET_LOWER: D}
TRANSITIONS: Final[Transitions[DeploymentStatus, DeploymentInput]] = {
    **{(state, I.DEPLOYED): Edge(U, "code or options changed") for state in DeploymentStatus},
    **{(state, I.DELETED): Edge(U, "it is deleted") for state in DeploymentStatus},
    **{(state, I.REACHED): Edge(H, "all wanted replicas run") for state in DeploymentStatus},
    (U, I.START_FAILED): Edge(F, "replicas of the new version failed too often"),
    (U, I.CHECK_FAILED): Edge(F, "replicas of the new version failed too often"),
    (F, I.START_FAILED): Edge(F, "it has failed already"),
    (F, I.CHECK_FAILED): Edge(F, "a replica of the version before failed, too"),
    **{(state, I.START_FAILED): Edge(X, "a replica did not start") for state in (H, X, P, D)},
    **{(state, I.CHECK_FAILED): Edge(X, "a replica died or failed its checks") for state in (H, X, P, D)},
    **{(state, event): Edge(_SCALES[event], event.value) for state in (H, P, D) for event in _SCALES},
    **{(state, event): Edge(state, "it is under way") for state in (U, X) for event in _SCALES},
    **{(F, event): Edge(U, "it was changed after it failed") for event in (I.SET_HIGHER, I.SET_LOWER)},
    **{(F, event): Edge(F, "it has failed") for event in (I.SCALED_UP, I.SCALED_DOWN)},
}
_TRIGGERS = {
    I.DEPLOYED: DeploymentStatusTrigger.CONFIG_UPDATE_STARTED,
    I.SCALED_UP: DeploymentStatusTrigger.AUTOSCALING,
    I.SCALED_DOWN: DeploymentStatusTrigger.AUTOSCALING,
    I.SET_HIGHER: DeploymentStatusTrigger.CONFIG_UPDATE_STARTED,
    I.SET_LOWER: DeploymentStatusTrigger.CONFIG_UPDATE_STARTED,
    I.START_FAILED: DeploymentStatusTrigger.REPLICA_STARTUP_FAILED,
    I.CHECK_FAILED: DeploymentStatusTrigger.HEALTH_CHECK_FAILED,
    I.DELETED: DeploymentStatusTrigger.DELETING,
}
_REACHED = {
    U: DeploymentStatusTrigger.CONFIG_UPDATE_COMPLETED,
    P: DeploymentStatusTrigger.UPSCALE_COMPLETED,
    D: DeploymentStatusTrigger.DOWNSCALE_COMPLETED,
}


class DeploymentState:
    """The status of one deployment with its trigger and message."""

    def __init__(self, name: str) -> None:
        self.machine: Machine[DeploymentStatus, DeploymentInput] = Machine(name, U, TRANSITIONS)
        self.trigger = DeploymentStatusTrigger.CONFIG_UPDATE_STARTED
        self.message = ""

    @property
    def status(self) -> DeploymentStatus:
        return self.machine.state

    @property
    def is_updating(self) -> bool:
        """Whether it is on the way to what was asked for, unlike one that follows its load."""
        changed = self.trigger is DeploymentStatusTrigger.CONFIG_UPDATE_STARTED
        return self.status is U or (changed and self.status in (P, D))

    def step(self, event: DeploymentInput, now: float, message: str = "") -> None:
        """See `Machine.step`."""
        before = self.status
        self.machine.step(event, now)
        if event is I.REACHED:
            self.trigger = _REACHED.get(before, DeploymentStatusTrigger.UNSPECIFIED)
        elif before is not self.status or event not in _SCALES:
            self.trigger = _TRIGGERS[event]
        self.message = message
