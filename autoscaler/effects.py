"""What the reconciler wants done in the world, and what came of it. Effects are carried out elsewhere; their
outcomes are facts of a later snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autoscaler.provider import LaunchRequest, LaunchResult, Machine, NodeType, ProviderError, SetupError


@dataclass(frozen=True, slots=True)
class Create:
    """Ask the platform for machines."""

    request: LaunchRequest


@dataclass(frozen=True, slots=True)
class Terminate:
    """Ask the platform to end machines."""

    machine_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetUp:
    """Turn a running machine into a node."""

    instance_id: str
    machine: Machine
    node_type: NodeType
    log_path: str


@dataclass(frozen=True, slots=True)
class Drain:
    """Ask the control store to keep new work off a node."""

    instance_id: str
    node_id: bytes
    reason: str
    only_if_idle: bool


@dataclass(frozen=True, slots=True)
class Resume:
    """Ask the control store to place work on a drained node again."""

    instance_id: str
    node_id: bytes
    reason: str


Effect = Create | Terminate | SetUp | Drain | Resume


@dataclass(frozen=True, slots=True)
class Created:
    """`error`: the call as a whole failed; only `Transient` leaves open whether machines exist."""

    token: str
    result: LaunchResult = field(default_factory=LaunchResult)
    error: ProviderError | None = None


@dataclass(frozen=True, slots=True)
class Terminated:
    """Per machine what the platform said; None: accepted."""

    answers: Mapping[str, ProviderError | None]


@dataclass(frozen=True, slots=True)
class SetUpEnded:
    """The setup returned, or failed with `error`."""

    instance_id: str
    error: SetupError | None = None


@dataclass(frozen=True, slots=True)
class Drained:
    """The control store's answer; `refused` says why not, "" when it was accepted."""

    instance_id: str
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Resumed:
    """The control store's answer; `failure` says why the node was not told yet."""

    instance_id: str
    failure: str = ""


@dataclass(frozen=True, slots=True)
class CallFailed:
    """A call that no effect asked for (a listing, the offers) failed."""

    error: ProviderError


Outcome = Created | Terminated | SetUpEnded | Drained | Resumed | CallFailed


@dataclass(frozen=True, slots=True)
class Listing:
    """What the platform listed by a call that began at `started_s`."""

    started_s: float
    machines: tuple[Machine, ...]
