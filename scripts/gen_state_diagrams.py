#!/usr/bin/env python3
"""Writes docs/state-machines.md from the tables of transitions in the code. `--check` only says whether it is
current.
"""

from __future__ import annotations

import argparse
import enum
import importlib
import pathlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "state-machines.md"

INTRODUCTION = """\
# State machines

Made by `scripts/gen_state_diagrams.py` from the `TRANSITIONS` tables in the code; do not edit. An event
that a table does not list for a state raises `InvalidTransition` with the entity's recent history.
"""


@dataclass(frozen=True)
class Source:
    """Where a table is, and what it describes. The first member of its state Enum is the initial state."""

    title: str
    module: str
    states: str
    table: str = "TRANSITIONS"


SOURCES = (
    Source("Task, or an actor's call (the owner's view)", "runtime._core.tasks", "TaskState"),
    Source(
        "Stream: the task that yields (the owner's view)",
        "runtime._ownership.streams",
        "SourceState",
        "SOURCE_TRANSITIONS",
    ),
    Source(
        "Stream: its reader (the owner's view)",
        "runtime._ownership.streams",
        "ReaderState",
        "READER_TRANSITIONS",
    ),
    Source("Node", "runtime._core.nodes", "NodeState"),
    Source("Job", "runtime._core.jobs", "JobState"),
    Source("Actor", "runtime._core.actors", "ActorState"),
    Source("Placement group", "runtime._core.placement_groups", "GroupState"),
    Source("Worker", "runtime._core.workers", "WorkerState"),
    Source("Worker process (its own view of its end)", "runtime._executor.lifecycle", "Stage"),
    Source("Object in a node's store", "runtime._core.store_index", "ObjectState"),
    Source("Leader of a pump", "runtime._transport.leadership", "Leader", "LEADER_TRANSITIONS"),
    Source(
        "Follower of a pump's leader",
        "runtime._transport.leadership",
        "FollowerState",
        "FOLLOWER_TRANSITIONS",
    ),
    Source("Background thread of a pump", "runtime._transport.background", "Phase"),
    Source("Member of a library's group of actors", "runtime._controllers.members", "MemberState"),
    Source("Training (its controller)", "runtime.train._core.states", "State"),
    Source("Trial of an experiment", "runtime.tune._core.trial", "TrialState"),
    Source("Runner of trials", "runtime.tune._core.experiment", "RunnerState"),
    Source("Application that is served", "runtime.serve._core.application", "ApplicationStatus"),
    Source("Deployment of an application", "runtime.serve._core.deployment", "DeploymentStatus"),
    Source("Replica of a deployment", "runtime.serve._core.replica", "ReplicaState"),
    Source("Ingress of a node", "runtime.serve._core.ingresses", "ProxyStatus"),
    Source("Instance (the autoscaler's view of a machine)", "autoscaler.instances", "InstanceState"),
)


def sections() -> Iterator[str]:
    """One section of the page per table."""
    fsm = importlib.import_module("runtime._core.fsm")
    for source in SOURCES:
        module: Any = importlib.import_module(source.module)
        states: type[enum.Enum] = getattr(module, source.states)
        diagram = fsm.mermaid(next(iter(states)), states, getattr(module, source.table))
        path = source.module.replace(".", "/") + ".py"
        yield f"## {source.title}\n\n`{path}`\n\n```mermaid\n{diagram}\n```\n"


def page() -> str:
    """The whole page."""
    return "\n".join([INTRODUCTION, *sections()])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail when the page is out of date"
    )
    options = parser.parse_args()
    text = page()
    if options.check:
        if PAGE.exists() and PAGE.read_text() == text:
            return 0
        sys.stderr.write(f"{PAGE} is out of date; run scripts/gen_state_diagrams.py\n")
        return 1
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
