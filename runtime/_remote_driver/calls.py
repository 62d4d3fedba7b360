"""Tasks and actors of a remote driver: packed here, submitted by the driver process under the ids chosen here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, cast
from weakref import WeakValueDictionary

from runtime import exceptions
from runtime._core import ids
from runtime._owner.actor_submitter import handle_object_id
from runtime._owner.arguments import ArgumentPacker
from runtime._owner.errors import task_error_of
from runtime._owner.functions import Function
from runtime._owner.streaming import STREAMING, StreamReader
from runtime._ownership.calls import Actor
from runtime._ownership.failures import StaleHandle
from runtime._ownership.records import Entry, PackedArguments
from runtime._ownership.tasks import TaskOptions
from runtime._wire import serialization
from runtime._wire.messages.base import ErrorKind, ErrorReply, WorkerAddress
from runtime._wire.messages.control import DEFINITIONS, ActorInfo, ActorSpec, KvPut
from runtime._wire.messages.worker import ActorSetup, StreamOptions
from runtime.object_ref import ObjectRef
from runtime.object_ref_generator import ObjectRefGenerator

from . import messages
from .objects import RemoteObjects
from .requests import Requests
from .streams import RemoteStream


@lru_cache(256)
def _pickled(classes: tuple[type[BaseException], ...]) -> bytes:
    return serialization.dumps(classes)


def _retry(given: bool | tuple[type[BaseException], ...]) -> bool | bytes:
    return given if isinstance(given, bool) else _pickled(given)


def _message(packed: PackedArguments) -> messages.Packed | None:
    if packed.value is None:
        return None
    return messages.Packed(
        packed.value.data,
        packed.value.buffers,
        [entry.object_id for entry in packed.entries],
        packed.places,
        [entry.object_id for entry in packed.held],
    )


def _let_go(core: Requests, objects: RemoteObjects, packed: PackedArguments) -> None:
    """The message with these arguments is on its way: what releases them comes after it."""
    if packed.held:
        with core.lock:
            objects.release_all(packed.held)


def _promise(
    core: Requests, objects: RemoteObjects, task_id: bytes, count: int
) -> ObjectRef | list[ObjectRef] | ObjectRefGenerator | None:
    """What the user gets for the results; see `Submission.promise`."""
    with core.lock:
        if count == 1:
            return objects.new_ref(objects.track(ids.object_id(task_id, 1)))
        if count < 0:
            ref = objects.new_ref(objects.track(ids.object_id(task_id, 1)))
            if count != STREAMING:
                return ref
            return ObjectRefGenerator(cast(StreamReader, RemoteStream(core, objects, task_id, ref)))
        return [
            objects.new_ref(objects.track(ids.object_id(task_id, index + 1))) for index in range(count)
        ] or None


class RemotePool:
    """A function with options, which the driver process knows by a number."""

    __slots__ = ("_core", "function", "number")

    def __init__(self, core: Requests, number: int, function: Function) -> None:
        self._core = core
        self.number = number
        self.function = function  # kept: the driver process forgets it after the last pool

    def __del__(self) -> None:
        self._core.released.add(_DeadPool(self._core, self.number))


class _DeadPool:
    __slots__ = ("_core", "_number")

    def __init__(self, core: Requests, number: int) -> None:
        self._core = core
        self._number = number

    def abandon(self) -> None:
        """Under the lock."""
        self._core.send(messages.Undefine([self._number]))


class RemoteFunctions:
    """See `_owner.functions.Functions`."""

    def __init__(self, core: Requests) -> None:
        self._core = core

    def publish(self, function: Function) -> None:
        """See `Functions.publish`."""
        if not function.published:
            reply = self._core.call_agent(KvPut(DEFINITIONS, function.key, function.pickled, True))
            if isinstance(reply, ErrorReply):
                raise exceptions.RaySystemError(f"cannot publish {function.name}: {reply.message}")
            function.published = True


class RemoteSubmitter:
    """See `_owner.submitter.TaskSubmitter`."""

    def __init__(self, core: Requests, objects: RemoteObjects, packer: ArgumentPacker) -> None:
        self._core = core
        self._objects = objects
        self._packer = packer
        self._last_pool = 0

    def pool(self, function: Function, options: TaskOptions) -> RemotePool:
        """Tells the driver process of a function with these options."""
        core = self._core
        with core.lock:
            self._last_pool = number = self._last_pool + 1
        core.send(
            messages.Define(
                number,
                function.key,
                function.pickled,
                function.name,
                function.full_name,
                function.max_calls,
                [entry.object_id for entry in function.held],
                options.request,
                options.runtime_env,
                options.num_returns,
                options.max_retries,
                _retry(options.retry_exceptions),
                options.name,
                options.capture_child_tasks,
                options.stream,
            )
        )
        return RemotePool(core, number, function)

    def submit(
        self,
        pool: RemotePool,
        function: Function,
        options: TaskOptions,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> ObjectRef | list[ObjectRef] | ObjectRefGenerator | None:
        """See `TaskSubmitter.submit`."""
        core = self._core
        packed = self._packer.pack(function.name, args, kwargs)
        task_id = core.ids.task()
        core.send(messages.Submit(task_id, pool.number, _message(packed)), waits=True)
        result = _promise(core, self._objects, task_id, options.num_returns)
        _let_go(core, self._objects, packed)
        return result


class RemoteActors:
    """See `_owner.actor_submitter.ActorSubmitter`."""

    def __init__(self, core: Requests, objects: RemoteObjects, packer: ArgumentPacker) -> None:
        self._core = core
        self._objects = objects
        self._packer = packer
        self._actors: WeakValueDictionary[bytes, Actor] = WeakValueDictionary()

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
        """See `ActorSubmitter.create`."""
        core = self._core
        core.check()
        packed = self._packer.pack(f"{spec.class_name}.__init__", args, kwargs)
        ours = [entry.object_id for entry in closure]

        def message(request: int) -> messages.Create:
            return messages.Create(request, spec, setup, _message(packed), ordered, get_if_exists, ours)

        other: ActorInfo | None = None
        if spec.name or spec.detached:
            other = core.request(message, ActorInfo | None)
        else:
            core.send(message(0))
        _let_go(core, self._objects, packed)
        if other is not None:
            return other
        with core.lock:
            actor = self._actors[spec.actor_id] = Actor(spec.actor_id, None, ordered)
            if not spec.detached:
                actor.handle = self._objects.track(handle_object_id(spec.actor_id))
                # The entry keeps the actor until the last handle is gone.
                actor.handle.on_free = lambda: self._forget(actor)
        return None

    def _forget(self, actor: Actor) -> None:
        actor.handle = None

    def actor(self, actor_id: bytes, handle: Entry | None, ordered: bool) -> Actor:
        """See `ActorSubmitter.actor`."""
        with self._core.lock:
            actor = self._actors.get(actor_id)
            if actor is None:
                actor = self._actors[actor_id] = Actor(actor_id, None, ordered)
            if handle is not None and actor.handle is None:
                found = actor
                actor.handle = handle
                handle.on_free = lambda: self._forget(found)
            return actor

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
        """See `ActorSubmitter.call`."""
        core = self._core
        self.check(actor)
        packed = self._packer.pack(name or method, args, kwargs)
        task_id = core.ids.call(actor.actor_id)

        def message(request: int) -> messages.Call:
            return messages.Call(
                request,
                task_id,
                actor.ordered,
                method,
                _message(packed),
                num_returns,
                retries,
                _retry(retry_exceptions),
                name,
                concurrency_group,
                max_pending,
                stream,
            )

        if max_pending > 0:
            core.request(message, None)  # it may be refused
        else:
            core.send(message(0), waits=True)
        result = _promise(core, self._objects, task_id, num_returns)
        _let_go(core, self._objects, packed)
        return result

    def kill(self, actor: Actor, no_restart: bool) -> Any:
        """See `ActorSubmitter.kill`."""
        refusal = self._core.request(
            lambda number: messages.Kill(number, actor.actor_id, actor.ordered, no_restart), str | None
        )
        return ErrorReply(ErrorKind.INTERNAL, refusal) if refusal else None

    def check(self, actor: Actor) -> None:
        """See `ActorSubmitter.check`."""
        if actor.death is not None:
            raise task_error_of(actor.death)

    def address(self, actor: Actor) -> WorkerAddress:
        """No process of the cluster can be reached from here."""
        raise exceptions.RaySystemError(
            "put(_owner=) is not available to a remote driver (ray://): let a task put the value."
        )

    def close(self) -> None:
        """See `ActorSubmitter.close`."""
        for actor in list(self._actors.values()):
            actor.death = StaleHandle(actor.actor_id)
