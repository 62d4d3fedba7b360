"""What the doctor knows of a cluster before it judges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from autoscaler.provider import Machine, Problem


class Entry(Enum):
    """How a machine's shell answers."""

    OPEN = "open"
    REFUSED = "refused"
    SILENT = "silent"
    REJECTED = "rejected"  # our identity
    OTHER_KEY = "other key"  # it shows another host key than before
    FAILED = "failed"


class Api(Enum):
    """How the head's API answers."""

    UNASKED = "unasked"
    ANSWERS = "answers"
    NOBODY = "nobody"  # listens
    SLOW = "slow"
    DENIED = "denied"
    NO_CONTROL = "no control"  # store is connected


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen on one machine.

    Attributes:
        words: why the entry failed.
        skew_s: how far its clock is ahead of ours; None: it did not say.
        disk_bytes: free where the node keeps its files; None: it did not say.
        file_system: type of the one that holds the node's folder, as `stat -f` names it; "": it did not say.
        python: "3.11", of what the node runs on; "" when it does not run.
        version: of our packages there; "" when they cannot be imported.
        runtime_error: the last line of why they cannot.
        started: a daemon was started there.
        is_alive: it runs.
        daemons: which of our daemons run there: head, control, node.
        listening: ports on which somebody listens.
        reaches_head: whether the control store can be reached from there; None: not tried.
        survives_reboot: whether something starts the head again; None: nothing is meant to.
        last_words: the end of its daemon's log, where it does not run.
    """

    entry: Entry
    words: str = ""
    skew_s: float | None = None
    disk_bytes: float | None = None
    file_system: str = ""
    python: str = ""
    version: str = ""
    runtime_error: str = ""
    started: bool = False
    is_alive: bool = False
    daemons: frozenset[str] = frozenset()
    listening: frozenset[int] = frozenset()
    reaches_head: bool | None = None
    survives_reboot: bool | None = None
    last_words: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Failure:
    """A node that could not be made.

    Attributes:
        has_log: its set-up began, so there is a log of it on the head.
        log: the last lines of that, if they could be had.
    """

    instance_id: str
    node_type: str
    step: str
    reason: str
    has_log: bool = False
    log: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything.

    Attributes:
        name: the cluster's.
        up: the command line that brings it up.
        down: the one that ends it.
        state: of the record; "" when nothing is remembered here.
        stops_itself: it may have ended while nobody looked.
        spec_problem: why its YAML cannot be read now.
        spec_changed: the YAML says something else than what is up.
        busy: who changes the cluster now.
        secret: "" fine, or what is wrong with the secret's file.
        secret_file: where it is.
        listing_problem: why the provider does not list machines.
        can_refuse: its words and advice when the provider's check finds something.
        machines: as listed.
        strangers: machines of this cluster's name that no record here knows.
        seen: machine id -> what was seen there.
        api: how the head's API answers.
        api_words: why the head's API does not answer, where it says nothing.
        api_port: where it should listen; 0: not known.
        head_version: clusterctl's and Python's on the head, as the API says.
        own_version: clusterctl's, here.
        status: the head's `/api/cluster_status`, or empty.
        failures: the latest nodes that could not be made, one for each reason.
        has_our_head: its nodes run daemons of ours, which can be judged; those of Ray cannot.
        setup_log: the end of the head's set-up, as it is kept here.
    """

    name: str
    up: str
    down: str
    own_version: str
    state: str = ""
    stops_itself: bool = False
    spec_problem: str = ""
    spec_changed: bool = False
    busy: str = ""
    secret: str = ""
    secret_file: str = ""
    listing_problem: str = ""
    can_refuse: Sequence[Problem] = ()
    machines: Sequence[Machine] = ()
    strangers: Sequence[str] = ()
    seen: Mapping[str, Seen] = field(default_factory=dict)
    api: Api = Api.UNASKED
    api_words: str = ""
    api_port: int = 0
    head_version: tuple[str, str] | None = None
    status: Mapping[str, Any] = field(default_factory=dict)
    failures: Sequence[Failure] = ()
    has_our_head: bool = True
    setup_log: Sequence[str] = ()
