"""The life of a job: a driver and all it started."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from runtime._core.fsm import Edge


class JobState(Enum):
    """The values are the names on the wire."""

    RUNNING = "RUNNING"
    FINISHED = "FINISHED"


class JobEvent(Enum):
    DRIVER_LEFT = "driver left"
    NODE_LOST = "driver's node died"


TRANSITIONS: Final[Mapping[tuple[JobState, JobEvent], Edge[JobState]]] = {
    (JobState.RUNNING, JobEvent.DRIVER_LEFT): Edge(JobState.FINISHED, "its driver's connection closed"),
    (JobState.RUNNING, JobEvent.NODE_LOST): Edge(JobState.FINISHED, "the node of its driver died"),
}
