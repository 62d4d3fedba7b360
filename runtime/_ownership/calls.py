"""Calls of actors, from the caller's side: in order, straight to the actor's process, across its restarts.

Where an actor is, and whether it lives, the control store says (`WatchActor`, a long poll); that it died, the broken
link says first.
"""

from __future__ import annotations

from collections import deque
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from runtime._core.tasks import TaskState
from runtime._system import interpreter
from runtime._wire.messages.base import ErrorKind, ErrorReply, WorkerAddress
from runtime._wire.messages.control import ActorInfo, KillActor, WatchActor
from runtime._wire.messages.worker import Cancel, Done, Value

from .arguments import fill
from .failures import (
    ActorDied,
    ActorUnavailable,
    ArgumentFailed,
    Cancelled,
    CannotSend,
    NotCreated,
    StaleHandle,
    TaskFailure,
)
from .objects import ObjectTable
from .outbox import Outbox
from .outcomes import Outcomes
from .records import INLINE, Entry, Link, Submission

WATCH_S = 60.0
RECONNECT_S = 0.5
_REGISTERED = Value(INLINE, b"N.")


class Actor:
    """An actor as one of its callers knows it."""

    __slots__ = (
        "__weakref__",
        "actor_id",
        "calls",
        "death",
        "handle",
        "inflight",
        "link",
        "named",
        "ordered",
        "registered",
        "released",
        "sequence",
        "state",
        "version",
        "watching",
    )

    def __init__(self, actor_id: bytes, handle: Entry | None, ordered: bool) -> None:
        self.actor_id = actor_id
        self.handle = handle  # None: nobody counts us: a detached actor, or one that we found by its name
        self.ordered = ordered
        self.named = False  # made here, and its name is taken until its last handle is gone
        self.state = "UNKNOWN"
        self.version = -1
        self.link: Link | None = None
        self.calls: deque[Call] = deque()  # not sent yet, in the caller's order
        self.inflight: dict[bytes, Call] = {}
        self.death: Any = None
        """The failure of every later call (see `failures.py`), once it is dead."""
        self.watching = False
        self.registered = True
        self.released = False  # made here, and its last handle is gone
        self.sequence = 0


class Call(Submission, eq=False, gc=interpreter.TRACK_RECORDS, kw_only=True):
    """One call of an actor's method."""

    actor: Actor
    handle: Entry | None = None  # held until the call is over: an actor finishes what it was asked

    def refuses_rerun(self, asker: bytes) -> str:
        actor = self.actor
        if actor.ordered and actor.link is not None and actor.link.peer.worker_id == asker:
            return "the actor that made it is the one that waits for it"
        if actor.death is not None:
            return "the actor that made it is dead"
        if actor.handle is not None and not actor.handle.holds:
            return "nothing refers to the actor that made it any more"
        return ""


class Calls:
    """Every actor that this process has a handle of, and its calls."""

    def __init__(
        self, address: WorkerAddress, objects: ObjectTable, outcomes: Outcomes, outbox: Outbox
    ) -> None:
        self._address = address
        self._objects = objects
        self._outcomes = outcomes
        self._pending = outcomes.pending
        self._outbox = outbox
        # Handles, calls and the questions that are under way keep them.
        self._actors: WeakValueDictionary[bytes, Actor] = WeakValueDictionary()
        outcomes.submitters[Call] = self

    # ------------------------------------------------------------ actors made here

    def create(
        self, actor_id: bytes, ordered: bool, handle: Entry | None, kept: list[Entry], named: bool = False
    ) -> Actor:
        """An actor that is about to be registered. `handle` counts its handles, unless it is detached: with it go the
        holds on what it is made of (`kept`)."""
        actor = Actor(actor_id, handle, ordered)
        actor.registered = False
        actor.named = named
        actor.state = "DEPENDENCIES_UNREADY"
        self._actors[actor_id] = actor
        if handle is not None:
            handle.on_free = lambda: self._out_of_scope(actor, kept)
        return actor

    def registered(self, actor: Actor, reply: ActorInfo | ErrorReply) -> None:
        """The control store's answer to the registration."""
        actor.registered = True
        if actor.handle is not None and actor.handle.value is None:
            self._objects.set_value(actor.handle, _REGISTERED)  # see `_unknown`
        if isinstance(reply, ErrorReply):
            self.died(actor, NotCreated(f"It was not created: {reply.message}"))
        elif reply.actor_id != actor.actor_id:
            actor.released = True
            self._actors.pop(actor.actor_id, None)
        else:
            self.learn(actor, reply)

    def discard(self, actor: Actor, kept: list[Entry]) -> None:
        """There will be no such actor, and no handle of it."""
        if actor.death is None:
            actor.death = NotCreated("It was not created: another one has its name.")
        actor.named = False
        if actor.handle is not None:
            self._objects.bury(self._objects.table.bury(actor.handle))
        else:
            self._objects.release_all(kept)

    def _out_of_scope(self, actor: Actor, kept: list[Entry]) -> None:
        self._objects.release_all(kept)
        actor.handle = None
        actor.released = True
        if actor.death is None or actor.named:
            self._outbox.agent.send(KillActor(actor.actor_id, True, True))

    # ------------------------------------------------------------ knowing an actor

    def actor(self, actor_id: bytes, handle: Entry | None, ordered: bool) -> Actor:
        """The actor of a handle that came from elsewhere."""
        actor = self._actors.get(actor_id)
        if actor is None:
            actor = self._actors[actor_id] = Actor(actor_id, None, ordered)
        if handle is not None and actor.handle is None:
            actor.handle = handle
            # The next handle that comes here brings an entry of its own.
            handle.on_free = lambda: self._forget(actor_id)
        return actor

    def _forget(self, actor_id: bytes) -> None:
        actor = self._actors.get(actor_id)
        if actor is not None:
            actor.handle = None

    def watch(self, actor: Actor) -> None:
        """Asks for news until the actor is alive or dead."""
        if actor.watching or not actor.registered or actor.link is not None or actor.death is not None:
            return
        actor.watching = True
        agent = self._outbox.agent

        def answered(reply: Any) -> None:
            actor.watching = False
            if not isinstance(reply, ErrorReply):
                self.learn(actor, reply)
            elif reply.kind in (ErrorKind.NOT_FOUND, ErrorKind.INVALID):
                self._unknown(actor, reply)
            elif self._objects.failure is None and not agent.closed:
                self.watch(actor)

        # Alive and out of reach: its end will be told at once, but perhaps only the link broke.
        timeout_s = RECONNECT_S if actor.state in ("ALIVE", "LOST") else WATCH_S
        agent.call(WatchActor(actor.actor_id, actor.version, timeout_s), answered)

    def _unknown(self, actor: Actor, reply: ErrorReply) -> None:
        """The control store knows no such actor any more, or not yet: a handle may travel before the actor can be
        registered. The object that counts the handles gets a value (of no use) once it is."""
        if actor.handle is not None and actor.handle.value is None:
            self._objects.call_when_ready(actor.handle, lambda: self.watch(actor))
        else:
            self.died(actor, NotCreated(reply.message))

    def learn(self, actor: Actor, info: ActorInfo) -> None:
        """The control store's news of an actor."""
        if info.version > actor.version:
            actor.version = info.version
            actor.state = info.state
            if info.state == "DEAD":
                self.died(actor, ActorDied(info))
            elif info.state == "RESTARTING":
                for call in [call for call in actor.calls if not call.retries]:
                    actor.calls.remove(call)
                    self._fail(call, self._unavailable(actor, "The actor is restarting"))
                self._settle_interrupted(
                    actor, "the actor was restarted: its process died while it ran this call"
                )
        if actor.link is not None or actor.death is not None:
            return
        if info.state == "ALIVE" and info.version == actor.version and info.address is not None:
            link = self._outbox.peer(info.address)
            if link is not None:
                actor.link = link
                actor.state = "ALIVE"
                self._settle_interrupted(actor, "the connection to its process broke while it ran this call")
                self._send(actor)
                return
        self.watch(actor)

    def _settle_interrupted(self, actor: Actor, why: str) -> None:
        """The calls that were at work when the process went out of reach: repeat them, in order, or fail them."""
        interrupted, actor.inflight = actor.inflight, {}
        again, failed = [], []
        for call in interrupted.values():
            if call.retries and call.state is TaskState.PUSHED:
                call.retries -= call.retries > 0
                self._outcomes.begin_attempt(call)
                call.move(TaskState.QUEUED)
                again.append(call)
            else:
                failed.append(call)
        actor.calls.extendleft(reversed(again))
        for call in failed:  # last: calls that waited for these may be sent now
            self._fail(call, self._unavailable(actor, why))

    def _unavailable(self, actor: Actor, why: str) -> ActorUnavailable:
        return ActorUnavailable(actor.actor_id, why)

    def died(self, actor: Actor, failure: Any) -> None:
        """It will never answer any more: its calls fail."""
        actor.state = "DEAD"
        actor.death = failure
        actor.link = None
        calls = [*actor.inflight.values(), *actor.calls]
        actor.inflight.clear()
        actor.calls.clear()
        for call in calls:
            self._fail(call, failure)

    def interrupt(self, actor: Actor) -> None:
        """Makes calls from here wait for the actor's next process, although this one may still have a moment."""
        if actor.state == "ALIVE":
            self._lose(actor)

    def link_lost(self, link: Link) -> None:
        """The process of some actor is gone; the control store will say what comes next."""
        for actor in list(self._actors.values()):
            if actor.link is link:
                self._lose(actor)

    def _lose(self, actor: Actor) -> None:
        actor.link = None
        actor.state = "LOST"
        self.watch(actor)

    # ------------------------------------------------------------ calls

    def submit(self, call: Call) -> None:
        """Takes a new call. Its result is promised, its arguments held."""
        actor = call.actor
        if call.handle is not None:
            call.handle.hold()
        if actor.death is not None:
            self._fail(call, actor.death)
        elif actor.state == "RESTARTING" and not call.retries:
            self._fail(call, self._unavailable(actor, "The actor is restarting"))
        else:
            self._pending[call.push.task_id] = call
            actor.calls.append(call)
            if actor.link is None:
                self.watch(actor)
            if call.packed.entries:
                self._objects.when_all_ready(call.missing(), lambda: self._ready(call))
            else:
                call.state = TaskState.QUEUED
                if actor.link is not None:
                    self._send(actor)

    def _ready(self, call: Call) -> None:
        """The values of its top-level references are there."""
        if call.state is TaskState.WAITING_FOR_ARGUMENTS:  # not cancelled meanwhile
            call.move(TaskState.QUEUED)
            self._send(call.actor)

    def rerun(self, call: Call) -> None:
        """See `Submitter.rerun`."""
        self._outcomes.begin_attempt(call)
        call.move(TaskState.WAITING_FOR_ARGUMENTS)
        self._pending[call.push.task_id] = call
        call.handle = call.actor.handle
        if call.handle is not None:
            call.handle.hold()
        # It takes its place among the calls only then: what it waits for may be a call of the same actor.
        self._objects.when_all_ready(call.missing(), lambda: self._queue_again(call))

    def _queue_again(self, call: Call) -> None:
        if call.state is not TaskState.WAITING_FOR_ARGUMENTS:
            return  # cancelled meanwhile
        actor = call.actor
        if actor.death is not None:
            self._fail(call, actor.death)
            return
        actor.sequence += 1
        call.push = msgspec.structs.replace(call.push, sequence=actor.sequence)
        call.move(TaskState.QUEUED)
        actor.calls.appendleft(call)  # the calls that wait there may wait for what it makes
        if actor.link is None:
            self.watch(actor)
        else:
            self._send(actor)

    def _send(self, actor: Actor) -> None:
        """Sends what is ready: in order, but for concurrent actors past calls that wait for arguments. What a congested
        link does not take stays here."""
        link = actor.link
        if link is None:
            return
        waiting: list[Call] = []
        failed: list[tuple[Call, TaskFailure]] = []
        while (
            actor.calls and actor.link is link and not link.closed
        ):  # a send may find that the link is broken
            if link.congested:
                link.on_room = self._room
                break
            call = actor.calls.popleft()
            if call.state is TaskState.WAITING_FOR_ARGUMENTS:
                waiting.append(call)
                if actor.ordered:
                    break
                continue
            push = call.push
            if call.packed.entries:
                push, error = fill(call.packed, push, self._address)
                if error is not None:
                    failed.append((call, ArgumentFailed(error.data, push.name or push.method)))
                    continue
                call.push = push
            call.move(TaskState.PUSHED)
            actor.inflight[push.task_id] = call
            try:
                link.send(push)
            except Exception as problem:  # nothing was sent, and the link goes on
                if actor.inflight.pop(push.task_id, None) is not None:
                    failed.append((call, CannotSend(f"call of {push.name or push.method}", str(problem))))
        if waiting:
            actor.calls.extendleft(reversed(waiting))
        for (
            call,
            failure,
        ) in failed:  # last: calls that waited for these are sent or fail now, all being in line again
            self._fail(call, failure)

    def _room(self, link: Link) -> None:
        """A link takes more again."""
        for actor in list(self._actors.values()):
            if actor.link is link:
                self._send(actor)

    # ------------------------------------------------------------ results

    def on_done(self, call: Call, link: Link, message: Done, _now: float) -> None:
        """The actor answered."""
        actor = call.actor
        actor.inflight.pop(message.task_id, None)
        if message.failed and call.takes_retry(message):
            self._outcomes.drop_attempt(call, link, message)
            self._outcomes.begin_attempt(call, message.seconds)
            call.move(TaskState.QUEUED)
            self._pending[message.task_id] = call
            actor.calls.appendleft(call)
            self._send(actor)
            return
        self._outcomes.take_nested(call, link, message)
        self._outcomes.settle(call, message.values, message.failed, message.seconds)
        self._release_handle(call)

    def _fail(self, call: Call, failure: Any) -> None:
        """A call that was being cancelled is cancelled, whatever became of its actor."""
        if call.state is TaskState.CANCELLING:
            failure = Cancelled(call.push.task_id)
        self._outcomes.fail(call, failure)
        self._release_handle(call)

    def _release_handle(self, call: Call) -> None:
        handle, call.handle = call.handle, None
        if handle is not None:
            self._objects.release(handle)

    def cancel(self, call: Call, _force: bool, recursive: bool) -> None:
        """See `Submitter.cancel`: it ends at once when no process has it or its process is out of reach, else the actor
        decides."""
        if not call.may_be_cancelled:
            return
        actor, task_id = call.actor, call.push.task_id
        if call.state is TaskState.PUSHED and actor.link is not None:
            call.move(TaskState.CANCELLING)
            actor.link.send(Cancel(task_id, False, recursive))
            return
        actor.inflight.pop(task_id, None)
        if call in actor.calls:  # else it was sent, or waits to run again
            actor.calls.remove(call)
        self._fail(call, Cancelled(task_id))
        self._send(actor)

    def close(self) -> None:
        """The process leaves the cluster: its handles are of no use in the next one."""
        for actor in list(self._actors.values()):
            actor.link = None
            actor.death = StaleHandle(actor.actor_id)
            actor.calls.clear()
            actor.inflight.clear()
