"""Who leads a pump, and what the threads do that follow.

One thread at a time leads: it polls and handles what comes. `LEADER_TRANSITIONS` says who may lead after whom. Other
threads that wait follow: `FOLLOWER_TRANSITIONS` is what each of them does until it looks again. No wake-up is lost: a
thread that has joined the followers looks once more whether anybody leads, and a leader that leaves wakes all of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, Final

from runtime._core.fsm import Edge, InvalidTransition


class Leader(IntEnum):
    """Who leads. Integers, since the table is on the path of every wait."""

    NOBODY = 0
    CALLER = 1
    BACKGROUND = 2
    VISITOR = 3
    CLOSED = 4


class FollowerState(IntEnum):
    """What a thread does that waits while another one leads."""

    JOINING = 0
    ASLEEP = 1
    AWAKE = 2


_N, _C, _B, _V, _X = Leader.NOBODY, Leader.CALLER, Leader.BACKGROUND, Leader.VISITOR, Leader.CLOSED
_J, _S, _W = FollowerState.JOINING, FollowerState.ASLEEP, FollowerState.AWAKE

LEADER_TRANSITIONS: Final[Mapping[tuple[Leader, Leader], Edge[Leader]]] = {
    (_N, _C): Edge(_C, "a thread waits for something"),
    (_N, _B): Edge(_B, "no caller waits"),
    (_N, _V): Edge(_V, "a thread handles what has come, without waiting"),
    (_C, _N): Edge(_N, "what it waits for is there, or the time is over"),
    (_B, _N): Edge(_N, "a caller waits or sends in full swing, an event loop leads, or the pump was stopped"),
    (_V, _N): Edge(_N, "what has come is handled"),
    (_N, _X): Edge(_X, "the pump was stopped, and nobody may lead any more"),
}
FOLLOWER_TRANSITIONS: Final[Mapping[tuple[FollowerState, FollowerState], Edge[FollowerState]]] = {
    (_J, _S): Edge(_S, "what it waits for is not there, and another thread leads"),
    (_J, _W): Edge(_W, "what it waits for is there, or nobody leads any more"),
    (_S, _W): Edge(_W, "the leader handled something or left, or the nap is over"),
}


class Follower:
    """A thread that waits while another one leads."""

    __slots__ = ("event", "state")

    def __init__(self) -> None:
        self.state = FollowerState.JOINING
        self.event = threading.Event()

    def move(self, target: FollowerState) -> None:
        """Takes one step of the table."""
        if (self.state, target) not in FOLLOWER_TRANSITIONS:
            raise InvalidTransition("a follower", self.state, target, ())
        self.state = target


class Leadership:
    """The leader of one pump, and its followers. From any thread.

    Args:
        left: called when a leader has left.
    """

    def __init__(self, left: Callable[[], None]) -> None:
        self.leader = Leader.NOBODY
        self.followers: list[Follower] = []
        """The threads that wait and would lead."""
        self._lock = threading.Lock()  # held while somebody leads; the leader writes `leader`
        self._thread = 0  # that leads, or did last
        self._left = left

    @property
    def is_led(self) -> bool:
        """Whether a thread leads."""
        return self._lock.locked()

    def take(self, leader: Leader) -> bool:
        """Makes the calling thread the leader, unless there is one. Then it must call `leave`."""
        thread = threading.get_ident()
        # Nothing is called between the lock and the state: an interrupt would come between them.
        if not self._lock.acquire(blocking=False):
            return False
        if (self.leader, leader) not in LEADER_TRANSITIONS:
            self._lock.release()
            raise InvalidTransition("the leader of a pump", self.leader, leader, ())
        self.leader = leader
        self._thread = thread
        return True

    def leave(self) -> None:
        """Lets another thread lead."""
        if (self.leader, _N) not in LEADER_TRANSITIONS:
            raise InvalidTransition("the leader of a pump", self.leader, _N, ())
        self.leader = _N
        self._lock.release()
        if self.followers:
            self.wake_followers()
        self._left()

    def close(self, timeout_s: float) -> None:
        """Lets nobody lead any more. Waits for a leader, unless the calling thread leads: then a signal has interrupted
        its wait."""
        took = self._lock.acquire(blocking=False)
        if not took and self._thread != threading.get_ident():
            took = self._lock.acquire(timeout=timeout_s)
        if took:
            self.leader = Leader.CLOSED

    def follow(self, joined: Callable[[], Any], ready: Callable[[], Any], timeout_s: float) -> None:
        """Waits until the leader handled something or left, at most for `timeout_s`.

        Args:
            joined: called when the leader can see that this thread waits.
            ready: says whether there is anything to wait for.
        """
        follower = Follower()
        self.followers.append(follower)
        try:
            joined()
            if self.is_led and not ready():
                follower.move(FollowerState.ASLEEP)
                follower.event.wait(timeout_s)
            follower.move(FollowerState.AWAKE)
        finally:
            self.followers.remove(follower)

    def wake_followers(self) -> None:
        """Has them look again."""
        for follower in tuple(self.followers):
            follower.event.set()
