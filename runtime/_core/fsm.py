"""State machines as constant tables: an Enum, a `TRANSITIONS` mapping, and nothing hidden.

A table maps `(state, event)` to an `Edge`: the next state and the reason the edge fires. The event is a
member of a second Enum, or the wanted state itself where an entity has no events of its own: `(A, B):
Edge(B, "why")`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import Enum
from typing import Generic, TypeVar

import msgspec

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)

HISTORY = 8
"""Transitions an entity remembers for `InvalidTransition`."""


class Edge(msgspec.Struct, Generic[S], frozen=True):
    """Where a transition leads, and why it happens."""

    target: S
    reason: str


Transitions = Mapping[tuple[S, E], Edge[S]]
"""The shape of every `TRANSITIONS` table."""


class InvalidTransition(Exception):
    """An event that the table does not list for the entity's state: a bug. The message has the recent history."""

    def __init__(self, entity: str, state: Enum, event: Enum, history: tuple[str, ...]) -> None:
        super().__init__(entity, state, event, history)
        self.entity = entity
        self.state = state
        self.event = event
        self.history = history

    def __str__(self) -> str:
        before = "; ".join(self.history) or "nothing"
        return f"{self.entity} is {self.state.name} and cannot take {self.event.name} (before that: {before})"


class Machine(Generic[S, E]):
    """One entity's state, moved only along the edges of its table."""

    __slots__ = ("_history", "_table", "entity", "state")

    def __init__(self, entity: str, initial: S, table: Transitions[S, E]) -> None:
        self.entity = entity
        self.state = initial
        self._table = table
        self._history: deque[str] = deque(maxlen=HISTORY)

    def can(self, event: E) -> bool:
        """Whether the table lists `event` for the present state."""
        return (self.state, event) in self._table

    def step(self, event: E, now: float = 0.0) -> S:
        """Takes the edge of `event` and returns the new state.

        Raises:
            InvalidTransition: the table has no such edge; the state is unchanged.
        """
        edge = self._table.get((self.state, event))
        if edge is None:
            raise InvalidTransition(self.entity, self.state, event, self.history)
        self._history.append(f"{now:.3f} {self.state.name} -{event.name}-> {edge.target.name}")
        self.state = edge.target
        return edge.target

    @property
    def history(self) -> tuple[str, ...]:
        """The last transitions, oldest first."""
        return tuple(self._history)


def terminal_states(states: type[S], table: Transitions[S, E]) -> frozenset[S]:
    """The states that no edge leaves for another one."""
    leaving = {state for (state, _), edge in table.items() if edge.target is not state}
    return frozenset(state for state in states if state not in leaving)


def reachable_states(initial: S, table: Transitions[S, E]) -> frozenset[S]:
    """The states that some sequence of events leads to from `initial`."""
    seen = {initial}
    frontier = [initial]
    while frontier:
        here = frontier.pop()
        for (state, _), edge in table.items():
            if state is here and edge.target not in seen:
                seen.add(edge.target)
                frontier.append(edge.target)
    return frozenset(seen)


def mermaid(initial: S, states: type[S], table: Transitions[S, E]) -> str:
    """The table as a mermaid state diagram; equal edges share an arrow."""
    lines = ["stateDiagram-v2", f"    [*] --> {initial.name}"]
    arrows: dict[tuple[S, S], list[str]] = {}
    for (state, _), edge in table.items():
        reasons = arrows.setdefault((state, edge.target), [])
        if edge.reason not in reasons:
            reasons.append(edge.reason)
    for (state, target), reasons in arrows.items():
        text = " / ".join(reasons).replace(":", ",").replace(";", ",")
        lines.append(f"    {state.name} --> {target.name}: {text}")
    final = terminal_states(states, table)
    lines += [f"    {state.name} --> [*]" for state in states if state in final]
    return "\n".join(lines)
