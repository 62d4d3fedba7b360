"""Calls of actors, from the caller's side: in order, straight to the actor's process, across its restarts.

Where an actor is, and whether it lives, the control store says (`WatchActor`, a long poll); that it died, the broken
connection says first. Every method but `call` and `create` runs under the pump's lock.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import msgspec

from runtime import exceptions
from runtime._core import ids
from runtime._core.tasks import TaskState
from runtime._ownership.arguments import fill
from runtime._ownership.failures import ArgumentFailed
from runtime._ownership.records import INLINE, NO_ARGUMENTS, Entry, Link, PackedArguments
from runtime._transport.connection import Connection
from runtime._wire import serialization
from runtime._wire.messages import codec
from runtime._wire.messages.base import ErrorKind, ErrorReply, WorkerAddress
from runtime._wire.messages.control import (
    ActorInfo,
    ActorSpec,
    KillActor,
    RegisterActor,
    WatchActor,
)
from runtime._wire.messages.worker import ActorSetup, Cancel, Done, Push, StreamOptions, Value

from .actor_calls import Actor, Call, UnreadDeath, death_of
from .errors import cannot_send
from .promises import NO_REFERENCES, parent, pickled_classes, promise

if TYPE_CHECKING:
    from runtime._process.core_worker import Core
    from runtime.object_ref import ObjectRef
    from runtime.object_ref_generator import ObjectRefGenerator

WATCH_S = 60.0
RECONNECT_S = 0.5


def handle_object_id(actor_id: bytes) -> bytes:
    """The object that counts the handles of an actor."""
    return ids.object_id(ids.CREATION_PREFIX + actor_id, 1)


class ActorSubmitter:
    """Every actor that this process has a handle of."""

    def __init__(self, core: Core) -> None:
        self._core = core
        core.outcomes.submitters[Call] = self
        # Handles, calls and the questions that are under way keep them.
        self._actors: WeakValueDictionary[bytes, Actor] = WeakValueDictionary()

    # ------------------------------------------------------------ creation

    def create(
        self,
        spec: ActorSpec,
        setup: ActorSetup,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        ordered: bool,
        get_if_exists: bool,
        closure: Sequence[Entry],
    ) -> ActorInfo | None:
        """Registers an actor whose spec lacks the constructor call, at once; the call follows when the values of its
        arguments are there. Returns the holder of the name when `get_if_exists` found one that is not this actor.
        What the class refers to (`closure`) is kept as the arguments are: for as long as it may be made again.

        Raises:
            ActorAlreadyExistsError: the name is taken.
            RaySystemError: the node agent is gone.
        """
        core = self._core
        core.check()
        packed = core.arguments.pack(f"{spec.class_name}.__init__", args, kwargs)
        creation = _creation(core, spec, setup, packed)
        box: list[Any] = []

        def register(creation: bytes) -> None:
            core.agent.call(
                RegisterActor(
                    msgspec.structs.replace(spec, creation=creation, owner=core.address), get_if_exists
                ),
                answered,
            )

        def ready() -> None:
            if actor.released or actor.death is not None:
                return
            push, error = fill(packed, creation, core.address)
            if error is None:
                register(codec.encode(push))
                return
            failed = ArgumentFailed(error.data, f"{spec.class_name}.__init__")
            cause = core.arguments.not_computed(failed)
            self._dead(actor, UnreadDeath(cause.data))
            core.agent.send(KillActor(spec.actor_id, cause=msgspec.msgpack.encode(cause)))

        def answered(reply: Any) -> None:
            box.append(reply)
            actor.registered = True
            if actor.handle is not None and actor.handle.value is None:
                core.objects.set_value(actor.handle, Value(INLINE, b"N."))  # see `_unknown`
            if isinstance(reply, ErrorReply):
                self._dead(actor, exceptions.ActorDiedError(f"It was not created: {reply.message}"))
            elif reply.actor_id != spec.actor_id:
                actor.released = True
                self._actors.pop(spec.actor_id, None)
            else:
                self._learn(actor, reply)

        with core.lock:
            actor = Actor(spec.actor_id, None, ordered)
            actor.registered = False
            actor.state = "DEPENDENCIES_UNREADY"
            self._actors[spec.actor_id] = actor
            for entry in closure:
                entry.hold()
            kept = [*packed.held, *closure]
            if not spec.detached:
                handle = actor.handle = core.objects.own(handle_object_id(spec.actor_id))
                handle.on_free = lambda: self._out_of_scope(actor, kept)
            missing = [entry for entry in packed.entries if entry.value is None]
            push, error = (creation, None) if missing else fill(packed, creation, core.address)
            if not missing and error is None:
                register(codec.encode(push))
            else:
                register(b"")
                core.objects.when_all_ready(missing, ready)
        if not spec.name and not spec.detached:
            return None
        core.wait(lambda: box, None)  # ends with the reply, or with the agent
        reply = box[0]
        if isinstance(reply, ErrorReply) or reply.actor_id != spec.actor_id:
            self._discard(actor, kept)
        if isinstance(reply, ErrorReply):
            if reply.kind == ErrorKind.EXISTS:
                raise exceptions.ActorAlreadyExistsError(reply.message)
            core.check()
            raise exceptions.RaySystemError(reply.message)
        return reply if reply.actor_id != spec.actor_id else None

    def _discard(self, actor: Actor, kept: list[Entry]) -> None:
        """There will be no such actor, and no handle of it."""
        objects = self._core.objects
        with self._core.lock:
            if actor.death is None:
                actor.death = exceptions.ActorDiedError("It was not created: another one has its name.")
            if actor.handle is not None:
                objects.bury(objects.table.bury(actor.handle))
            else:
                for entry in kept:
                    objects.release(entry)

    def _out_of_scope(self, actor: Actor, kept: list[Entry]) -> None:
        for entry in kept:
            self._core.objects.release(entry)
        actor.handle = None
        actor.released = True
        if actor.death is None:
            self._core.agent.send(KillActor(actor.actor_id, True, True))

    # ------------------------------------------------------------ knowing an actor

    def actor(self, actor_id: bytes, handle: Entry | None, ordered: bool) -> Actor:
        """The actor of a handle that came from elsewhere."""
        with self._core.lock:
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

    def _watch(self, actor: Actor) -> None:
        """Asks for news until the actor is alive or dead."""
        if actor.watching or not actor.registered:
            return
        actor.watching = True

        def answered(reply: Any) -> None:
            actor.watching = False
            if isinstance(reply, ErrorReply):
                if reply.kind in (ErrorKind.NOT_FOUND, ErrorKind.INVALID):
                    self._unknown(actor, reply)
                elif self._core.pump.failure is None and not self._core.agent.closed:
                    self._watch(actor)
                return
            self._learn(actor, reply)

        # Alive and out of reach: its end will be told at once, but perhaps only the connection broke.
        timeout_s = RECONNECT_S if actor.state in ("ALIVE", "LOST") else WATCH_S
        self._core.agent.call(WatchActor(actor.actor_id, actor.version, timeout_s), answered)

    def kill(self, actor: Actor, no_restart: bool) -> Any:
        """Has an actor killed; returns the answer. Calls from here fail from then on, or wait for the next process,
        although this one may still have a moment to live.

        Raises:
            RaySystemError: the agent is gone.
        """
        core = self._core
        core.objects.settle_borrows()  # what the actor has sent may be held by nobody else yet
        killed: list[Any] = []
        core.agent.call(KillActor(actor.actor_id, no_restart), killed.append)
        if no_restart:  # what became of it is asked in the same breath
            news = core.call_agent(WatchActor(actor.actor_id, actor.version, 0.0))
            if isinstance(news, ActorInfo):
                with core.lock:
                    self._learn(actor, news)
        core.pump.wait(lambda: killed)  # ends with the answer, or with the agent
        if isinstance(killed[0], ErrorReply):
            core.check()
        elif not no_restart:
            self._interrupted(actor)
        return killed[0]

    def _interrupted(self, actor: Actor) -> None:
        """Makes calls from here wait for the actor's next process, although this one may still have a moment."""
        with self._core.lock:
            if actor.state == "ALIVE":
                actor.connection = None
                actor.state = "LOST"
                self._watch(actor)

    def _unknown(self, actor: Actor, reply: ErrorReply) -> None:
        """The control store knows no such actor any more, or not yet: a handle may travel before the actor can be
        registered. The object that counts the handles gets a value (of no use) once it is."""
        if actor.handle is not None and actor.handle.value is None:
            self._core.objects.when_ready(actor.handle, lambda: self._watch(actor))
        else:
            self._dead(actor, exceptions.ActorDiedError(reply.message))

    def _learn(self, actor: Actor, info: ActorInfo) -> None:
        if info.version > actor.version:
            actor.version = info.version
            actor.state = info.state
            if info.state == "DEAD":
                self._dead(actor, death_of(info))
            elif info.state == "RESTARTING":
                for call in [call for call in actor.calls if not call.retries]:
                    actor.calls.remove(call)
                    self._fail(call, self._unavailable(actor, "the actor is restarting"))
                self._settle_interrupted(
                    actor, "the actor was restarted: its process died while it ran this call"
                )
        if actor.connection is not None or actor.death is not None:
            return
        if info.state == "ALIVE" and info.version == actor.version and info.address is not None:
            connection = self._core.peer(info.address)
            if connection is not None:
                actor.connection = connection
                actor.state = "ALIVE"
                self._settle_interrupted(actor, "the connection to its process broke while it ran this call")
                self._send(actor)
                return
        self._watch(actor)

    def _settle_interrupted(self, actor: Actor, why: str) -> None:
        """The calls that were at work when the process went out of reach: repeat them, in order, or fail them."""
        again = []
        for call in actor.inflight.values():
            self._core.outcomes.pending.pop(call.push.task_id, None)
            if call.retries and call.state is TaskState.PUSHED:
                call.retries -= call.retries > 0
                self._core.outcomes.begin_attempt(call)
                call.move(TaskState.QUEUED)
                again.append(call)
            else:
                self._fail(call, self._unavailable(actor, why))
        actor.inflight.clear()
        actor.calls.extendleft(reversed(again))

    def _unavailable(self, actor: Actor, why: str) -> exceptions.RayError:
        return exceptions.ActorUnavailableError(
            f"The actor is temporarily unavailable: {why}", actor.actor_id
        )

    def _dead(self, actor: Actor, error: exceptions.RayError) -> None:
        actor.state = "DEAD"
        actor.death = error
        actor.connection = None
        calls = [*actor.inflight.values(), *actor.calls]
        actor.inflight.clear()
        actor.calls.clear()
        for call in calls:
            self._core.outcomes.pending.pop(call.push.task_id, None)
            self._fail(call, error)

    def address(self, actor: Actor) -> WorkerAddress:
        """Where the actor's process is; waits until it has one.

        Raises:
            RayActorError: it is dead.
        """
        with self._core.lock:
            if actor.connection is None and actor.death is None:
                self._watch(actor)
        self._core.pump.kick()
        self._core.wait(lambda: actor.connection is not None or actor.death is not None, None)
        connection = actor.connection
        if connection is None:
            death = actor.death or exceptions.ActorDiedError("It died a moment ago.")
            # A copy: what is raised keeps the frames of whoever catches it.
            raise serialization.deserialize(self._core.objects.error_value(death).data)[0]
        address: WorkerAddress = connection.peer
        return address

    def connection_lost(self, connection: Connection) -> None:
        """The process of some actor is gone; the control store will say what comes next."""
        for actor in list(self._actors.values()):
            if actor.connection is connection:
                actor.connection = None
                actor.state = "LOST"
                self._watch(actor)

    # ------------------------------------------------------------ calls

    def call(
        self,
        actor: Actor,
        method: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        num_returns: int = 1,
        retries: int = 0,
        retry_exceptions: bool | tuple[type[BaseException], ...] = False,
        name: str = "",
        concurrency_group: str = "",
        max_pending: int = -1,
        stream: StreamOptions | None = None,
    ) -> ObjectRef | list[ObjectRef] | ObjectRefGenerator | None:
        """Calls a method; returns at once what the user gets for its results.

        Raises:
            PendingCallsLimitExceeded: `max_pending` calls are unanswered.
            RaySystemError: the node agent is gone.
        """
        core = self._core
        core.check()
        if max_pending > 0 and len(actor.calls) + len(actor.inflight) >= max_pending:
            raise exceptions.PendingCallsLimitExceeded(
                f"The task {method} could not be submitted to actor {actor.actor_id.hex()} because more than "
                f"{max_pending} tasks are queued on the actor. Wait for some, or raise `max_pending_calls`."
            )
        packed = core.arguments.pack(name or method, args, kwargs) if args or kwargs else NO_ARGUMENTS
        with core.lock:
            task_id = core.ids.call(actor.actor_id)
            actor.sequence += 1
            handle = actor.handle
            call = Call(
                packed,
                Push(
                    task_id,
                    b"",
                    method,
                    packed.value,
                    NO_REFERENCES,
                    num_returns,
                    None,
                    0,
                    name,
                    actor.sequence,
                    concurrency_group,
                    stream=stream,
                    retry_on=() if retry_exceptions.__class__ is bool else pickled_classes(retry_exceptions),
                ),
                retries,
                retries,
                retry_exceptions,
                time.time(),
                parent(),
                TaskState.WAITING_FOR_ARGUMENTS,
                actor=actor,
                handle=handle,
            )
            result = promise(core, call)
            if handle is not None:
                handle.hold()
            if actor.death is not None:
                self._fail(call, actor.death)
                self.check(actor)
                return result
            if actor.state == "RESTARTING" and not retries:
                self._fail(call, self._unavailable(actor, "the actor is restarting"))
                return result
            actor.calls.append(call)
            if actor.connection is None:
                self._watch(actor)
            if packed.entries:
                core.objects.when_all_ready(call.missing(), lambda: self._ready(call))
            else:
                call.state = TaskState.QUEUED
                if actor.connection is not None:
                    self._send(actor)
        return result

    def rerun(self, call: Call) -> None:
        """See `Submitter.rerun`."""
        self._core.outcomes.begin_attempt(call)
        call.move(TaskState.WAITING_FOR_ARGUMENTS)
        call.handle = call.actor.handle
        if call.handle is not None:
            call.handle.hold()
        # It takes its place among the calls only then: what it waits for may be a call of the same actor.
        self._core.objects.when_all_ready(call.missing(), lambda: self._queue_again(call))

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
        actor.calls.append(call)
        if actor.connection is None:
            self._watch(actor)
        else:
            self._send(actor)

    def check(self, actor: Actor) -> None:
        """Raises ActorHandleNotFoundError when the handle is from before a `shutdown`."""
        if isinstance(actor.death, exceptions.ActorHandleNotFoundError):
            raise actor.death

    def close(self) -> None:
        """The process leaves the cluster: its handles are of no use in the next one."""
        for actor in list(self._actors.values()):
            actor.connection = None
            actor.death = exceptions.ActorHandleNotFoundError(
                f"ActorHandle objects are not valid across sessions: actor {actor.actor_id.hex()} was created before "
                "shutdown(). Create a new one."
            )
            actor.calls.clear()
            actor.inflight.clear()

    def _ready(self, call: Call) -> None:
        """The values of its top-level references are there."""
        if call.state is TaskState.WAITING_FOR_ARGUMENTS:  # not cancelled meanwhile
            call.move(TaskState.QUEUED)
            self._send(call.actor)

    def _send(self, actor: Actor) -> None:
        """Sends what is ready: in order, but for concurrent actors past calls that wait for arguments. What a congested
        connection does not take stays here."""
        connection = actor.connection
        if connection is None:
            return
        waiting: list[Call] = []
        while actor.calls:
            if connection.congested:
                connection.on_room = self._room
                break
            call = actor.calls.popleft()
            if call.state is TaskState.WAITING_FOR_ARGUMENTS:
                waiting.append(call)
                if actor.ordered:
                    break
                continue
            if call.packed.entries:
                call.push, error = fill(call.packed, call.push, self._core.address)
                if error is not None:
                    failure = ArgumentFailed(error.data, call.push.name or call.push.method)
                    self._finish(call, [self._core.arguments.not_computed(failure)], failed=True)
                    continue
            call.move(TaskState.PUSHED)
            actor.inflight[call.push.task_id] = call
            self._core.outcomes.pending[call.push.task_id] = call
            try:
                connection.send(call.push)
            except Exception as error:  # nothing was sent, and the connection goes on
                if actor.inflight.pop(call.push.task_id, None) is not None:
                    self._core.outcomes.pending.pop(call.push.task_id, None)
                    self._fail(call, cannot_send(f"call of {call.push.name or call.push.method}", error))
        if waiting:
            actor.calls.extendleft(reversed(waiting))

    def _room(self, connection: Connection) -> None:
        """A connection takes more again."""
        for actor in list(self._actors.values()):
            if actor.connection is connection:
                self._send(actor)

    # ------------------------------------------------------------ results

    def on_done(self, call: Call, connection: Link, message: Done, _now: float) -> None:
        """The actor answered."""
        actor = call.actor
        actor.inflight.pop(message.task_id, None)
        if message.failed and call.takes_retry(message):
            self._core.outcomes.begin_attempt(call, message.seconds)
            call.move(TaskState.QUEUED)
            actor.calls.appendleft(call)
            self._send(actor)
            return
        self._core.outcomes.take_nested(call, connection, message)
        self._finish(call, message.values, message.failed, message.seconds)

    def _finish(self, call: Call, values: list[Value], failed: bool, seconds: float = 0.0) -> None:
        self._core.outcomes.settle(call, values, failed, seconds)
        handle, call.handle = call.handle, None
        if handle is not None:
            self._core.objects.release(handle)

    def _fail(self, call: Call, error: exceptions.RayError) -> None:
        self._finish(call, [self._core.objects.error_value(error)], failed=True)

    def cancel(self, call: Call, _force: bool, recursive: bool) -> None:
        """Cancels a call: dropped when not sent, else the actor decides. Under the lock."""
        if not call.may_be_cancelled:
            return
        if call.state is not TaskState.PUSHED:
            if call in call.actor.calls:  # else it waits to run again
                call.actor.calls.remove(call)
            self._fail(call, exceptions.TaskCancelledError(ids.TaskID(call.push.task_id)))
            self._send(call.actor)
        elif call.actor.connection is not None:
            call.move(TaskState.CANCELLING)
            call.actor.connection.send(Cancel(call.push.task_id, False, recursive))

    def find(self, task_id: bytes) -> Call | None:
        """The unanswered call of a task id."""
        actor = self._actors.get(ids.actor_id_of(task_id))
        if actor is None:
            return None
        found = actor.inflight.get(task_id)
        return found or next((call for call in actor.calls if call.push.task_id == task_id), None)


def _creation(core: Core, spec: ActorSpec, setup: ActorSetup, packed: PackedArguments) -> Push:
    return Push(
        ids.CREATION_PREFIX + spec.actor_id,
        spec.function_key,
        "__init__",
        packed.value,
        [],
        0,
        core.address,
        0,
        f"{setup.class_name}.__init__",
        actor=setup,
    )
