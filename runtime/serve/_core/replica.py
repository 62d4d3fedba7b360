"""The life of one replica."""

from __future__ import annotations

import math
from enum import Enum
from typing import Final

import msgspec

from runtime._core.fsm import Edge, Machine, Transitions
from runtime.serve._core.published import Target
from runtime.serve._core.specs import DeploymentOptions, ReplicaReady
from runtime.serve._core.states import ReplicaState

S, U, C, R, X, E = (
    ReplicaState.STARTING,
    ReplicaState.UPDATING,
    ReplicaState.RECOVERING,
    ReplicaState.RUNNING,
    ReplicaState.STOPPING,
    ReplicaState.STOPPED,
)


class ReplicaInput(Enum):
    READY = "it answers"
    UPDATE = "options changed"
    STOP = "not needed, or broken"
    DIED = "its process ended"


TRANSITIONS: Final[Transitions[ReplicaState, ReplicaInput]] = {
    (S, ReplicaInput.READY): Edge(R, "its constructor has returned"),
    (C, ReplicaInput.READY): Edge(R, "it has answered a restarted controller"),
    (R, ReplicaInput.UPDATE): Edge(U, "options changed that a running replica can take"),
    (U, ReplicaInput.READY): Edge(R, "it has taken the options"),
    (S, ReplicaInput.STOP): Edge(X, "its constructor failed, or it is not needed any more"),
    (C, ReplicaInput.STOP): Edge(X, "it is not needed any more, or was not ready yet"),
    (R, ReplicaInput.STOP): Edge(X, "it is not needed any more, or failed its health checks"),
    (U, ReplicaInput.STOP): Edge(X, "it did not take the options, or is not needed any more"),
    (S, ReplicaInput.DIED): Edge(E, "its process ended"),
    (C, ReplicaInput.DIED): Edge(E, "its process is gone"),
    (R, ReplicaInput.DIED): Edge(E, "its process ended"),
    (U, ReplicaInput.DIED): Edge(E, "its process ended"),
    (X, ReplicaInput.DIED): Edge(E, "it has stopped"),
}


class ReplicaRecord(msgspec.Struct, frozen=True):
    """What the control store keeps of a replica, so that a restarted controller finds it.

    Attributes:
        id: `app#deployment#unique`.
        version: of its `DeploymentSpec`.
        options: digest of the options that it has taken (`digest`).
        ready: where it listens; None until it runs.
        started_s: when it was created, seconds since the epoch.
        has_group: whether it has a placement group of its own, named like its actor.
    """

    id: str
    app: str
    deployment: str
    token: bytes
    version: str
    options: str
    rank: int
    started_s: float
    ready: ReplicaReady | None = None
    has_group: bool = False

    @property
    def actor_name(self) -> str:
        """Of its actor, as with Ray."""
        return f"SERVE_REPLICA::{self.id}"

    @property
    def key(self) -> bytes:
        """Of this record in the control store."""
        return f"replica\0{self.id}".encode()


class Replica:
    """One replica, as the controller sees it.

    Attributes:
        since_s: the time of its last transition.
        ready_s: when its constructor returned; long ago for one of before a restart of the controller.
        failed_checks: in a row.
        check: number of the health check that runs, or 0.
        is_up: whether its process runs (its constructor may not have begun).
        node: where it is, or is to be; "" if not known.
        taking: digest of the options that an update brings.
    """

    def __init__(self, record: ReplicaRecord, state: ReplicaState, now: float, node: str = "") -> None:
        self.record = record
        self.machine: Machine[ReplicaState, ReplicaInput] = Machine(record.id, state, TRANSITIONS)
        self.since_s = now
        self.ready_s = -math.inf
        self.failed_checks = 0
        self.check = 0
        self.is_up = False
        self.node = record.ready.node if record.ready is not None else node
        self.taking = ""

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def key(self) -> tuple[str, str]:
        """Of its actor."""
        return ("replica", self.record.id)

    @property
    def state(self) -> ReplicaState:
        return self.machine.state

    @property
    def is_live(self) -> bool:
        """Whether it is to stay."""
        return self.state not in (X, E)

    @property
    def serves(self) -> bool:
        """Whether callers are told of it."""
        return self.record.ready is not None and self.state in (R, U, C)

    def step(self, event: ReplicaInput, now: float) -> None:
        """See `Machine.step`."""
        self.machine.step(event, now)
        self.since_s = now

    def target(self, slots: int) -> Target:
        """What callers are told."""
        ready = self.record.ready
        assert ready is not None
        return Target(
            self.id, self.record.token, ready.node, ready.unix, ready.host, ready.port, slots, ready.zone
        )


def digest(options: DeploymentOptions) -> str:
    """Of the options that a running replica takes by `reconfigure`."""
    return repr((options.user_config, options.max_ongoing_requests, options.logging_config))
