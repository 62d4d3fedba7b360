"""Actors: classes that live in a process of their own, and the handles that call them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, NoReturn

import msgspec

from runtime import _options, _scheduling, exceptions
from runtime._core import ids
from runtime._signature import ArgumentCheck, Parameters, parameters_of
from runtime._wire.messages.base import ErrorKind, ErrorReply
from runtime._wire.messages.control import ActorInfo, ActorSpec, GetNamedActor
from runtime._wire.messages.worker import ActorSetup, StreamOptions
from runtime._worker import context
from runtime._worker.actor_submitter import Actor, handle_object_id
from runtime._worker.core_worker import Core, current
from runtime._worker.executor import ActorExit, is_async
from runtime._worker.functions import Function
from runtime._worker.streaming import Stream
from runtime.object_ref import ObjectRef
from runtime.object_ref_generator import ObjectRefGenerator

ASYNC_MAX_CONCURRENCY = 1000


class MethodOptions(msgspec.Struct, frozen=True, array_like=True):
    """The defaults of one method, from `@method` and its kind."""

    num_returns: int = 1
    concurrency_group: str = ""
    max_task_retries: int | None = None
    retry_exceptions: bool = False
    parameters: Parameters | None = None
    is_generator: bool = False
    stream: StreamOptions | None = None


class ActorShape(msgspec.Struct, frozen=True, array_like=True):
    """What a handle knows of its actor; travels with handles and in the actor's spec."""

    class_name: str
    methods: dict[str, MethodOptions]
    ordered: bool
    max_task_retries: int
    max_pending_calls: int
    detached: bool


def method(**options: Any) -> Any:
    """Sets defaults for a method of an actor class: num_returns, concurrency_group, max_task_retries, ..."""
    valid = {
        *"num_returns concurrency_group max_task_retries retry_exceptions enable_task_events tensor_transport".split(),
        "_generator_backpressure_num_objects",
        "_num_objects_per_yield",
    }
    if not options or not options.keys() <= valid:
        raise ValueError(f"@method takes options by keyword, at least one of: {', '.join(sorted(valid))}.")

    _options.validate_stream(options)

    def decorate(function: Any) -> Any:
        function.__runtime_method__ = options
        return function

    return decorate


def exit_actor() -> NoReturn:
    """Ends the current actor on purpose: it is not restarted, and pending calls fail with ActorDiedError.

    Raises:
        TypeError: the caller is no actor.
    """
    running = context.execution.get()
    if running is None or not running.actor_id:
        raise TypeError("exit_actor() ends the actor that calls it, and this is not one.")
    raise ActorExit


class ActorClass:
    """A class whose instances are actors: `Class.remote(...)` starts one and returns its handle."""

    def __init__(self, cls: type, options: Mapping[str, Any]) -> None:
        _options.validate(options, _options.ACTOR)
        self._class = cls
        self._defaults = dict(options)
        self._name = cls.__name__
        self._prepared: tuple[Core, Function] | None = None
        self._check = ArgumentCheck(parameters_of(cls))
        self.__doc__ = cls.__doc__
        self.__name__ = cls.__name__
        self.__qualname__ = cls.__qualname__
        self.__module__ = cls.__module__

    def __call__(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise TypeError(f"{self._name} lives in a process of its own: make one with {self._name}.remote().")

    def __mro_entries__(self, _bases: Any) -> NoReturn:
        raise TypeError(
            f"{self._name} is remote already: inherit from the plain class, and make the subclass remote."
        )

    def options(self, **options: Any) -> _BoundActorClass:
        """The same class with other options."""
        _options.validate(options, _options.ACTOR, in_options=True)
        return _BoundActorClass(self, {**self._defaults, **options})

    def remote(self, *args: Any, **kwargs: Any) -> ActorHandle:
        """Starts an actor; returns at once."""
        return self._create(self._defaults, args, kwargs)

    def _create(self, options: Mapping[str, Any], args: Any, kwargs: Any) -> ActorHandle:
        core = current()
        name = options.get("name") or ""
        namespace = options.get("namespace") or core.session.namespace
        if options.get("get_if_exists"):
            if not name:
                raise ValueError("get_if_exists looks for the actor by its name: give one.")
            try:
                return get_actor(name, namespace)
            except ValueError:
                pass
        if name == "" and options.get("name") is not None:
            raise ValueError("name is empty: leave it out for an actor without a name.")
        self._check(args, kwargs)
        asynchronous = is_async(self._class)
        concurrency = options.get("max_concurrency") or (ASYNC_MAX_CONCURRENCY if asynchronous else 1)
        groups = _groups(options.get("concurrency_groups"))
        request, capture, held = _scheduling.actor_request(options, self._name)
        function = self._function(core)
        core.functions.publish(function)
        detached = options.get("lifetime") == "detached"
        shape = ActorShape(
            self._name,
            method_table(self._class),
            concurrency == 1 and not groups,
            options.get("max_task_retries") or 0,
            options.get("max_pending_calls") or -1,
            detached,
        )
        actor_id = ids.actor_id(core.job_id)
        spec = ActorSpec(
            actor_id,
            core.job_id,
            self._name,
            name,
            namespace,
            core.address,
            detached,
            options.get("max_restarts") or 0,
            shape.max_task_retries,
            concurrency,
            request,
            held,
            _options.runtime_env_json(options),
            function.key,
            b"",
            msgspec.msgpack.encode(shape),
        )
        setup = ActorSetup(
            actor_id,
            concurrency,
            name,
            namespace,
            self._name,
            groups,
            capture_child_tasks=capture,
            stream_limit=options.get("_actor_generator_backpressure_num_objects") or -1,
        )
        other = core.actors.create(spec, setup, args, kwargs, bool(options.get("get_if_exists")))
        if other is not None:
            return handle_of(core, other)
        return _new_handle(core, core.actors.actor(actor_id, None, shape.ordered), shape)

    def _function(self, core: Core) -> Function:
        prepared = self._prepared
        if prepared is None or prepared[0] is not core:
            prepared = self._prepared = core, Function(self._class, self._name)
        return prepared[1]

    def __getstate__(self) -> dict[str, Any]:
        # All that is known: a class that refers to itself is still empty when this is unpickled.
        return {**self.__dict__, "_prepared": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


class _BoundActorClass:
    """`Class.options(...)`."""

    def __init__(self, actor_class: ActorClass, options: Mapping[str, Any]) -> None:
        self._actor_class = actor_class
        self._options = options

    def remote(self, *args: Any, **kwargs: Any) -> ActorHandle:
        """See `ActorClass.remote`."""
        return self._actor_class._create(self._options, args, kwargs)


def _groups(value: Any) -> dict[str, int]:
    if isinstance(value, list):
        return {group["name"]: group["max_concurrency"] for group in value}
    return dict(value or {})


def method_table(cls: type) -> dict[str, MethodOptions]:
    """The methods that handles offer, with their defaults."""
    table = {}
    for name, member in inspect.getmembers(cls, callable):
        if isinstance(member, type) or (name.startswith("__") and name not in vars(cls)):
            continue
        options = getattr(member, "__runtime_method__", {})
        streams = inspect.isgeneratorfunction(member) or inspect.isasyncgenfunction(member)
        _options.require_generator(options, streams, f"{cls.__name__}.{name}")
        table[name] = MethodOptions(
            _options.num_returns(options, streams),
            options.get("concurrency_group") or "",
            options.get("max_task_retries"),
            bool(options.get("retry_exceptions")),
            parameters_of(member, skip_first=not isinstance(inspect.getattr_static(cls, name), staticmethod)),
            streams,
            _options.stream_options(options),
        )
    table["__ray_ready__"] = table["__ray_terminate__"] = table["__ray_call__"] = MethodOptions()
    return table


class ActorMethod:
    """A method of an actor: `handle.method.remote(...)`."""

    __slots__ = ("_actor", "_check", "_name", "_options", "_ref", "_shape")

    def __init__(self, handle: ActorHandle, name: str, options: MethodOptions) -> None:
        # Not the handle itself, which keeps us: such a circle would keep the actor until the next garbage collection.
        self._actor = handle._actor
        self._shape = handle._shape
        self._ref = handle._ref
        self._name = name
        self._options = options
        self._check = ArgumentCheck(options.parameters)

    def __call__(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise TypeError(f"{self._name} runs in the actor's process: call it with .{self._name}.remote().")

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the method. Returns an `ObjectRef`, a list of them, None (num_returns=0), or a generator."""
        return self._call(args, kwargs, self._options, "")

    def options(self, **options: Any) -> _BoundMethod:
        """The same method with other options."""
        return _BoundMethod(self, options)

    def _call(self, args: Any, kwargs: Any, options: MethodOptions, name: str) -> Any:
        self._check(args, kwargs)
        shape = self._shape
        retries = options.max_task_retries
        result = current().actors.call(
            self._actor,
            self._name,
            args,
            kwargs,
            num_returns=options.num_returns,
            retries=shape.max_task_retries if retries is None else retries,
            retry_exceptions=options.retry_exceptions,
            name=name or f"{shape.class_name}.{self._name}",
            concurrency_group=options.concurrency_group,
            max_pending=shape.max_pending_calls,
            stream=options.stream,
        )
        if isinstance(result, Stream):
            return ObjectRefGenerator(result)
        return result[0] if len(result) == 1 else result or None


class _BoundMethod:
    """`handle.method.options(...)`."""

    _VALID = frozenset(
        "num_returns name concurrency_group max_task_retries retry_exceptions enable_task_events tensor_transport "
        "_labels _generator_backpressure_num_objects".split()
    )

    def __init__(self, actor_method: ActorMethod, options: Mapping[str, Any]) -> None:
        if "_num_objects_per_yield" in options:
            raise ValueError(
                "_num_objects_per_yield cannot be overridden per call, as the method decides what it yields: "
                "write it in @method."
            )
        unknown = options.keys() - self._VALID
        if unknown:
            raise ValueError(
                f"Calls have no option {', '.join(sorted(unknown))}. They have: {', '.join(sorted(self._VALID))}."
            )
        defaults = actor_method._options
        name = f"{actor_method._shape.class_name}.{actor_method._name}"
        _options.validate_stream(options)
        _options.require_generator(options, defaults.is_generator, name)
        stream, limit = defaults.stream, options.get("_generator_backpressure_num_objects")
        if limit is not None:
            stream = StreamOptions(limit, stream.objects_per_yield if stream is not None else 1)
        self._method = actor_method
        self._name = options.get("name") or ""
        self._options = MethodOptions(
            defaults.num_returns
            if options.get("num_returns") is None
            else _options.num_returns(options, False),
            options.get("concurrency_group") or defaults.concurrency_group,
            options.get("max_task_retries", defaults.max_task_retries),
            bool(options.get("retry_exceptions", defaults.retry_exceptions)),
            is_generator=defaults.is_generator,
            stream=stream,
        )

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """See `ActorMethod.remote`."""
        return self._method._call(args, kwargs, self._options, self._name)


class ActorHandle:
    """A reference to an actor. While any handle lives, so does the actor (unless detached, or killed)."""

    _actor: Actor
    _shape: ActorShape
    _ref: ObjectRef | None  # counts the handles

    def __getattr__(self, name: str) -> ActorMethod:
        shape: ActorShape = self.__dict__["_shape"]
        options = shape.methods.get(name)
        if options is None:
            raise AttributeError(f"'{shape.class_name}' object has no attribute '{name}'")
        method = self.__dict__[name] = ActorMethod(self, name, options)
        return method

    def __dir__(self) -> list[str]:
        return list(self._shape.methods)

    @property
    def _actor_id(self) -> ids.ActorID:
        return ids.ActorID(self._actor.actor_id)

    @property
    def _ray_actor_id(self) -> ids.ActorID:
        return self._actor_id

    def __repr__(self) -> str:
        return f"Actor({self._shape.class_name}, {self._actor.actor_id.hex()})"

    def __hash__(self) -> int:
        return hash(self._actor.actor_id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ActorHandle) and self._actor.actor_id == other._actor.actor_id

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self._actor.actor_id, msgspec.msgpack.encode(self._shape), self._ref)


def _new_handle(core: Core, actor: Actor, shape: ActorShape) -> ActorHandle:
    handle = ActorHandle.__new__(ActorHandle)
    handle._actor = actor
    handle._shape = shape
    handle._ref = None
    if actor.handle is not None:
        with core.lock:
            handle._ref = core.objects.new_ref(actor.handle)
    return handle


def _rebuild(actor_id: bytes, shape: bytes, ref: ObjectRef | None) -> ActorHandle:
    core = current()
    decoded = msgspec.msgpack.decode(shape, type=ActorShape)
    entry = ref._entry if ref is not None else None
    return _new_handle(core, core.actors.actor(actor_id, entry, decoded.ordered), decoded)


def handle_of(core: Core, info: ActorInfo) -> ActorHandle:
    """A handle of an actor that the control store told of."""
    shape = msgspec.msgpack.decode(info.spec.methods, type=ActorShape)
    entry = None
    if not info.spec.detached:
        with core.lock:
            entry = core.objects.borrowed_entry(handle_object_id(info.actor_id), info.spec.owner)
    return _new_handle(core, core.actors.actor(info.actor_id, entry, shape.ordered), shape)


def get_actor(name: str, namespace: str | None = None) -> ActorHandle:
    """Finds a live named actor.

    Raises:
        ValueError: there is none of that name in the namespace.
    """
    if not name:
        raise ValueError("get_actor() needs the name of an actor, and got an empty one.")
    if namespace is not None and not isinstance(namespace, str):
        raise TypeError(f"namespace is a string, not {namespace!r}.")
    if namespace == "":
        raise ValueError("namespace is empty: leave it out for the current one.")
    core = current()
    reply = core.call_agent(GetNamedActor(name, namespace or core.session.namespace))
    if isinstance(reply, ErrorReply):
        if reply.kind == ErrorKind.NOT_FOUND:
            raise ValueError(
                f"No live actor is named {name!r} in namespace {namespace or core.session.namespace!r}. "
                "It may have died, or live in another namespace."
            )
        raise exceptions.RaySystemError(reply.message)
    return handle_of(core, reply)
