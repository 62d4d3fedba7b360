"""Long polls of the control store that are repeated for as long as somebody is interested.

A poll first tells how things are, then each change. It asks again only when what it told last was taken: a consumer
that is behind hears of the latest state and not of each one before it, and nothing piles up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from runtime._core.actors import ActorState
from runtime._core.nodes import NodeState
from runtime._core.resources import to_floats
from runtime._transport.connection import Connection
from runtime._wire.messages.base import ErrorKind, ErrorReply, Request
from runtime._wire.messages.control import ActorInfo, WatchActor
from runtime._wire.messages.libraries import KeyValue, NodeChanges, WatchKey, WatchNodes, digest_of

from .news import ActorChanged, KeyChanged, News, NodeChanged

WATCH_S = 30.0


class Poll(ABC):
    """One long poll. Everything here runs under the engine's lock.

    Args:
        tell: takes the news of one answer. `ask` must follow once they are taken.
    """

    def __init__(self, agent: Connection, tell: Callable[[Poll, Sequence[News]], None]) -> None:
        self._agent = agent
        self._tell = tell
        self.stopped = False
        """Nobody is interested any more, or nothing will change any more."""

    def ask(self) -> None:
        """Waits for the next change."""
        if not self.stopped:
            self._agent.call(self.request(), self._answered)

    def _answered(self, reply: Any) -> None:
        if self.stopped:
            return
        if not isinstance(reply, ErrorReply):
            news = self.learn(reply)
        elif reply.kind in (ErrorKind.NOT_FOUND, ErrorKind.INVALID):
            self.stopped = True
            news = self.refused(reply.message)
        elif self._agent.closed:
            self.stopped = True
            news = ()
        else:
            self.ask()
            return
        if news or self.stopped:
            self._tell(self, news)
        else:
            self.ask()

    @abstractmethod
    def request(self) -> Request[Any]:
        """What to ask."""

    @abstractmethod
    def learn(self, reply: Any) -> Sequence[News]:
        """What is new in an answer."""

    def refused(self, reason: str) -> Sequence[News]:
        """What is told when the control store does not know the thing."""
        return ()


class NodePoll(Poll):
    """All nodes of the cluster."""

    def __init__(self, agent: Connection, tell: Callable[[Poll, Sequence[News]], None]) -> None:
        super().__init__(agent, tell)
        self._version = -1
        self._states: dict[bytes, str] = {}  # what was told last

    def request(self) -> WatchNodes:
        return WatchNodes(self._version, WATCH_S)

    def learn(self, reply: NodeChanges) -> Sequence[News]:
        self._version = reply.version
        news = []
        for node in reply.nodes:
            if self._states.get(node.node_id) == node.state:
                continue
            self._states[node.node_id] = node.state
            state = NodeState(node.state)
            resources = to_floats(node.total)
            news.append(
                NodeChanged(
                    node.node_id.hex(),
                    state,
                    node.death_reason,
                    node.host,
                    dict(node.labels),
                    resources,
                    node.deadline_ms or None,
                )
            )
        return news


class ActorPoll(Poll):
    """One actor, until it is dead."""

    def __init__(
        self, agent: Connection, tell: Callable[[Poll, Sequence[News]], None], actor_id: bytes
    ) -> None:
        super().__init__(agent, tell)
        self._actor_id = actor_id
        self._version = -1

    def request(self) -> WatchActor:
        return WatchActor(self._actor_id, self._version, WATCH_S)

    def learn(self, reply: ActorInfo) -> Sequence[News]:
        if reply.version <= self._version:
            return ()
        self._version = reply.version
        state = ActorState(reply.state)
        self.stopped = state is ActorState.DEAD
        return [
            ActorChanged(self._actor_id.hex(), state, reply.death_reason, reply.node_id.hex(), reply.restarts)
        ]

    def refused(self, reason: str) -> Sequence[News]:
        return [ActorChanged(self._actor_id.hex(), ActorState.DEAD, reason, "", 0)]


class KeyPoll(Poll):
    """The value of one key. `namespace` is the control store's, `shown` the one of the news."""

    def __init__(
        self,
        agent: Connection,
        tell: Callable[[Poll, Sequence[News]], None],
        namespace: str,
        shown: str,
        key: bytes,
    ) -> None:
        super().__init__(agent, tell)
        self.place = namespace, key
        self._shown = shown
        self._known = b""

    def request(self) -> WatchKey:
        return WatchKey(*self.place, self._known, WATCH_S)

    def learn(self, reply: KeyValue) -> Sequence[News]:
        digest = digest_of(reply.value)
        if digest == self._known:
            return ()
        self._known = digest
        return [KeyChanged(self._shown, self.place[1], reply.value)]
