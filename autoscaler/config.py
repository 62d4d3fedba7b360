"""What the operator allows and wants, as the autoscaler reads it. Written as JSON by the head's
composition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

import msgspec

from autoscaler.provider import NodeType

HASH_VERSION = "1"
"""Version of the rule by which config hashes are made; a hash begins with it, and machines of another version
are not called outdated."""


def hash_rule(config_hash: str) -> str:
    """The version of the rule by which a config hash was made."""
    return config_hash.partition("-")[0] if "-" in config_hash else ""


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long an instance may stay in a state before the loop acts. RUNNING has none: it lasts while its
    node does."""

    queued_s: float = 300.0  # until it is asked for; then the wish is planned anew
    requested_s: float = 180.0
    allocated_s: float = 600.0  # until the machine runs
    setting_up_s: float = 1200.0  # until its node has joined
    draining_s: float = 300.0
    terminating_s: float = 60.0  # until it is asked again


class Cause(Enum):
    """Why a node is drained."""

    IDLE = "idle"  # it was idle for longer than its timeout
    OUTDATED = "outdated"  # it is idle, and was made from another configuration than today's
    CONSOLIDATION = "consolidation"  # what it holds has room elsewhere
    SURPLUS = "surplus"  # there are more than a maximum allows
    UNWANTED = "unwanted"  # its machine shall not be the cluster's any more
    BY_HAND = "by hand"  # somebody else than the autoscaler drains it


@dataclass(frozen=True, slots=True)
class Budgets:
    """Limits beside the counts of machines.

    Attributes:
        max_hourly_price: of all workers together; None: no limit.
        max_disrupted: nodes drained at the same time for another reason than idleness, in all.
        max_creating: `create` calls in flight at once.
        max_setting_up: setups in flight at once.
        max_disrupted_by: nodes drained at the same time for one cause; within `max_disrupted`, but for idleness,
            which has no other limit than one given here.
    """

    max_hourly_price: float | None = None
    max_disrupted: int = 10
    max_creating: int = 8
    max_setting_up: int = 32
    max_disrupted_by: Mapping[Cause, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Consolidation:
    """When busy nodes are given up because what they run has room elsewhere.

    Attributes:
        after_s: it must have had room elsewhere for so long.
        max_used: nodes of which more is used are left alone; 0 to 1.
    """

    after_s: float = 600.0
    max_used: float = 0.5


@dataclass(frozen=True, slots=True)
class AutoscalerConfig:
    """Everything the autoscaler is told.

    Attributes:
        head_type: the node type of the head machine. Workers of that type are allowed if its `max_workers`
            says so.
        max_workers: of all types together.
        upscaling_speed: started at once per type: this many times the running ones, and at least five; see
            `budgets.pace`.
        idle_timeout_s: for node types that have none of their own.
        config_hashes: node type -> hash of all that shapes its machines. Workers with another hash are
            replaced when idle.
        consolidation: None: busy nodes stay.
        log_dir: where setup logs go, one per instance.
        quiet_s: demand is planned when it has not changed for this long ...
        patience_s: ... or at the latest after this.
        tick_s: a tick happens at least this often.
        provider_timeout_s: the deadline of every provider call (setup has its own).
        adopt_grace_s: how long an unknown machine of ours may stay without a registered node.
        node_grace_s: how long a running instance may be without a registered node, after the head restarted.
    """

    cluster_id: str
    cluster_name: str
    node_types: tuple[NodeType, ...]
    head_type: str
    max_workers: int
    upscaling_speed: float = 1.0
    idle_timeout_s: float = 300.0
    budgets: Budgets = field(default_factory=Budgets)
    deadlines: Deadlines = field(default_factory=Deadlines)
    config_hashes: Mapping[str, str] = field(default_factory=dict)
    log_dir: str = ""
    quiet_s: float = 0.2
    patience_s: float = 1.0
    tick_s: float = 5.0
    provider_timeout_s: float = 60.0
    adopt_grace_s: float = 10.0
    node_grace_s: float = 30.0
    consolidation: Consolidation | None = None

    def __post_init__(self) -> None:
        names = [kind.name for kind in self.node_types]
        if len(set(names)) != len(names):
            raise ValueError(f"node types must have different names, got {', '.join(sorted(names))}")
        if self.head_type not in names:
            raise ValueError(
                f"the head's node type {self.head_type!r} is not among {', '.join(sorted(names))}"
            )
        for kind in self.node_types:
            if not 0 <= kind.min_workers <= kind.max_workers:
                raise ValueError(
                    f"node type {kind.name!r}: min_workers {kind.min_workers} must lie between 0 and "
                    f"max_workers {kind.max_workers}"
                )
        if self.max_workers < 0:
            raise ValueError(f"max_workers must not be negative, got {self.max_workers}")
        if self.upscaling_speed < 0:
            raise ValueError(f"upscaling_speed must not be negative, got {self.upscaling_speed}")

    def node_type(self, name: str) -> NodeType | None:
        """The type of that name; None when the operator has removed it."""
        return next((kind for kind in self.node_types if kind.name == name), None)

    def idle_timeout_of(self, name: str) -> float:
        """How long a node of the type may be idle."""
        kind = self.node_type(name)
        if kind is None or kind.idle_timeout_s is None:
            return self.idle_timeout_s
        return kind.idle_timeout_s

    def to_json(self) -> bytes:
        """The configuration as JSON."""
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, text: bytes | str) -> AutoscalerConfig:
        """Reads what `to_json` wrote.

        Raises:
            ValueError: the text is no such configuration; the message names the field.
        """
        return msgspec.json.decode(text, type=cls)
