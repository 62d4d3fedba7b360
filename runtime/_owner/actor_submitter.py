"""Creating and calling actors: what `ActorClass.remote` and its handles need."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from runtime import exceptions
from runtime._core import ids
from runtime._core.tasks import TaskState
from runtime._ownership.arguments import fill
from runtime._ownership.borrowing import Borrowing
from runtime._ownership.calls import Actor, Call, Calls
from runtime._ownership.failures import ArgumentFailed, ConstructorFailed, NotCreated, StaleHandle
from runtime._ownership.records import NO_ARGUMENTS, Entry, PackedArguments, hold_all
from runtime._ownership.streams import Streams
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
from runtime._wire.messages.worker import ActorSetup, Push, StreamOptions
from runtime.object_ref import ObjectRef
from runtime.object_ref_generator import ObjectRefGenerator

from .arguments import ArgumentPacker
from .errors import task_error_of
from .gathering import afterwards, call_or_gather, is_gathering
from .links import Links
from .objects import Objects
from .promises import NO_REFERENCES, parent, pickled_classes, promise
from .streaming import Readers

_SETTLE_S = 5.0
"""An owner answers from its background thread, at once; one that is stopped or cut off is not waited for longer."""


def handle_object_id(actor_id: bytes) -> bytes:
    """The object that counts the handles of an actor."""
    return ids.object_id(ids.CREATION_PREFIX + actor_id, 1)


class ActorSubmitter:
    """Makes actors and calls of them. From any thread. What becomes of them decides `runtime._ownership.calls`."""

    def __init__(
        self,
        links: Links,
        task_ids: ids.TaskIds,
        objects: Objects,
        borrowing: Borrowing,
        packer: ArgumentPacker,
        streams: Streams,
        readers: Readers,
        calls: Calls,
    ) -> None:
        self._links = links
        self._ids = task_ids
        self._objects = objects
        self._borrowing = borrowing
        self._packer = packer
        self._streams = streams
        self._readers = readers
        self._calls = calls

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
            ValueError: a member of a gang has a name or is detached.
        """
        links, objects, calls = self._links, self._objects, self._calls
        links.check()
        if is_gathering() and (spec.name or spec.detached):
            raise ValueError("Actors of a gang have no names and are not detached: they end with the gang.")
        packed = self._packer.pack(f"{spec.class_name}.__init__", args, kwargs)
        creation = _creation(links.address, spec, setup, packed)
        box: list[Any] = []

        def register(creation: bytes) -> None:
            whole = msgspec.structs.replace(spec, creation=creation, owner=links.address)
            call_or_gather(links.agent, RegisterActor(whole, get_if_exists), answered)

        def ready() -> None:
            if actor.released or actor.death is not None:
                return
            push, error = fill(packed, creation, links.address)
            if error is None:
                register(codec.encode(push))
                return
            cause = self._packer.not_computed(ArgumentFailed(error.data, f"{spec.class_name}.__init__"))
            calls.died(actor, ConstructorFailed(cause.data))
            links.agent.send(KillActor(spec.actor_id, cause=msgspec.msgpack.encode(cause)))

        def answered(reply: Any) -> None:
            box.append(reply)
            calls.registered(actor, reply)

        with links.lock:
            hold_all(closure)
            kept = [*packed.held, *closure]
            handle = None if spec.detached else objects.own(handle_object_id(spec.actor_id))
            actor = calls.create(spec.actor_id, ordered, handle, kept, bool(spec.name))
            missing = [entry for entry in packed.entries if entry.value is None]
            push, error = (creation, None) if missing else fill(packed, creation, links.address)
            if not missing and error is None:
                register(codec.encode(push))
            else:
                register(b"")
                afterwards(lambda: objects.when_all_ready(missing, ready))
        if not spec.name and not spec.detached:
            return None
        links.wait(lambda: box, None)  # ends with the reply, or with the agent
        reply = box[0]
        if isinstance(reply, ErrorReply) or reply.actor_id != spec.actor_id:
            with links.lock:
                calls.discard(actor, kept)
        if isinstance(reply, ErrorReply):
            if reply.kind == ErrorKind.EXISTS:
                raise exceptions.ActorAlreadyExistsError(reply.message)
            links.check()
            raise exceptions.RaySystemError(reply.message)
        return reply if reply.actor_id != spec.actor_id else None

    # ------------------------------------------------------------ actors

    def actor(self, actor_id: bytes, handle: Entry | None, ordered: bool) -> Actor:
        """The actor of a handle that came from elsewhere."""
        with self._links.lock:
            return self._calls.actor(actor_id, handle, ordered)

    def kill(self, actor: Actor, no_restart: bool) -> Any:
        """Has an actor killed; returns the answer. Calls from here fail from then on, or wait for the next process,
        although this one may still have a moment to live.

        Raises:
            RaySystemError: the agent is gone.
        """
        links, calls = self._links, self._calls
        self._settle_borrows()
        killed: list[Any] = []
        links.agent.call(KillActor(actor.actor_id, no_restart), killed.append)
        if no_restart:  # what became of it is asked in the same breath
            news = links.call_agent(WatchActor(actor.actor_id, actor.version, 0.0))
            if isinstance(news, ActorInfo):
                with links.lock:
                    calls.learn(actor, news)
        links.pump.wait(lambda: killed)  # ends with the answer, or with the agent
        if isinstance(killed[0], ErrorReply):
            links.check()
        elif not no_restart:
            with links.lock:
                calls.interrupt(actor)
        return killed[0]

    def _settle_borrows(self) -> None:
        """Waits until the owners know what this process holds of theirs: what the actor has sent may be held by nobody
        else yet."""
        self._objects.register_borrows()
        self._links.pump.wait(lambda: not self._borrowing.unanswered, _SETTLE_S)

    def address(self, actor: Actor) -> WorkerAddress:
        """Where the actor's process is; waits until it has one.

        Raises:
            RayActorError: it is dead.
        """
        links = self._links
        with links.lock:
            self._calls.watch(actor)
        links.pump.kick()
        links.wait(lambda: actor.link is not None or actor.death is not None, None)
        link = actor.link
        if link is None:
            death = task_error_of(actor.death or NotCreated("It died a moment ago."))
            # A copy: what is raised keeps the frames of whatever catches it.
            raise serialization.deserialize(self._objects.error_value(death).data)[0]
        address: WorkerAddress = link.peer
        return address

    def check(self, actor: Actor) -> None:
        """Raises ActorHandleNotFoundError when the handle is from before a `shutdown`."""
        if isinstance(actor.death, StaleHandle):
            raise task_error_of(actor.death)

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
        self._links.check()
        if max_pending > 0 and len(actor.calls) + len(actor.inflight) >= max_pending:
            raise exceptions.PendingCallsLimitExceeded(
                f"The task {method} could not be submitted to actor {actor.actor_id.hex()} because more than "
                f"{max_pending} tasks are queued on the actor. Wait for some, or raise `max_pending_calls`."
            )
        retry_on = (
            () if retry_exceptions.__class__ is bool else pickled_classes(retry_exceptions)
        )  # may run user code
        packed = self._packer.pack(name or method, args, kwargs) if args or kwargs else NO_ARGUMENTS
        with self._links.lock:
            actor.sequence += 1
            call = Call(
                packed,
                Push(
                    self._ids.call(actor.actor_id),
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
                    retry_on=retry_on,
                ),
                retries,
                retries,
                retry_exceptions,
                time.time(),
                parent(),
                TaskState.WAITING_FOR_ARGUMENTS,
                actor=actor,
                handle=actor.handle,
            )
            result = promise(self._objects, self._streams, self._readers, call)
            self._calls.submit(call)
        if actor.death is not None:
            self.check(actor)
        return result


def _creation(owner: WorkerAddress, spec: ActorSpec, setup: ActorSetup, packed: PackedArguments) -> Push:
    return Push(
        ids.CREATION_PREFIX + spec.actor_id,
        spec.function_key,
        "__init__",
        packed.value,
        [],
        0,
        owner,
        0,
        f"{setup.class_name}.__init__",
        actor=setup,
    )
