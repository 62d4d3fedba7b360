"""Handles of actors, and the methods by which they are called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import msgspec

from runtime import exceptions
from runtime._core import ids
from runtime._ownership.calls import Actor
from runtime._process.core_worker import Core, current
from runtime._wire.messages.base import ErrorReply
from runtime._wire.messages.control import ActorInfo
from runtime._wire.serialization import collector
from runtime.object_ref import ObjectRef

from . import invocation, tensor_transport
from . import options as _options
from .actor_methods import (
    ActorShape,
    MethodOptions,
    Retry,
    check_retry,
    decode_shape,
    unknown_group,
)
from .signature import ArgumentCheck


class ActorMethod:
    """A method of an actor: `handle.method.remote(...)`."""

    __slots__ = ("_actor", "_check", "_method_name", "_options", "_ref", "_retry", "_shape", "_task_name")

    def __init__(self, handle: ActorHandle, name: str, options: MethodOptions) -> None:
        # Not the handle itself, which keeps us: such a circle would keep the actor until the next garbage collection.
        self._actor = handle._ray_actor
        self._shape = handle._ray_shape
        self._ref = handle._ray_ref
        self._method_name = name
        self._options = options
        self._retry = options.retry()
        self._check = ArgumentCheck(options.parameters)
        self._task_name = f"{handle._ray_shape.class_name.rpartition('.')[2]}.{name}"

    def __call__(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise TypeError(
            "Actor methods cannot be called directly: in place of "
            f"object.{self._method_name}() write object.{self._method_name}.remote()."
        )

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the method. Returns an `ObjectRef`, a list of them, None (num_returns=0), or a generator."""
        return self._call(args, kwargs, self._options, self._retry, self._task_name)

    def _remote(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        return self.options(**options).remote(*(args or ()), **(kwargs or {}))

    def options(self, **options: Any) -> _BoundMethod:
        """The same method with other options for its calls. None means what `@method` or the class says.

        Args:
            num_returns (int or str, default 1, "streaming" for generators): references that a call returns: 0 or
                more, or "streaming" for an `ObjectRefGenerator`. "dynamic" is deprecated.
            name (str, default "Class.method"): name of the call in logs and `util.state`.
            concurrency_group (str, default: the actor's own): group of the actor in which the call runs.
            max_task_retries (int, default: the actor's): further attempts of the call after the actor died; -1: no
                limit.
            retry_exceptions (bool or list, default False): retry also when the method raised: any exception, or an
                instance of these classes.
            _generator_backpressure_num_objects (int, default -1): values that a generator may be ahead of its reader;
                -1: no limit. Not 0.
            _generator_backpressure_num_bytes (int, default -1): their size, beyond which one value may go; -1: no
                limit. Not 0.
            enable_task_events (bool, default True): without effect; calls are always listed by `util.state`.
            tensor_transport (str, default: that of `@method`): "object_store", "gloo" or "nccl"; see `@method`.
            _labels (dict, default None): without effect.

        Raises:
            TypeError: calls have no such option, or it has a value of a wrong type.
            ValueError: an option is out of range, the actor has no such concurrency group, or `_num_objects_per_yield`
                is given, which belongs to `@method`.
            AssertionError: `retry_exceptions` is neither a bool nor a list of exception classes.
        """
        return _BoundMethod(self, options)

    def bind(self, *args: Any, **kwargs: Any) -> Any:
        """A graph node that makes this call when the graph is executed; see `runtime.dag`."""
        return self._bind(args, kwargs, self._options.num_returns, {})

    def _bind(self, args: Any, kwargs: Any, num_returns: int, options: Mapping[str, Any]) -> Any:
        from runtime.dag.class_node import bind_method

        self._check(args, kwargs)
        return bind_method(self._handle(), self._method_name, num_returns, args, kwargs, options)

    def _handle(self) -> ActorHandle:
        handle = ActorHandle.__new__(ActorHandle)
        handle._ray_actor, handle._ray_shape, handle._ray_ref = self._actor, self._shape, self._ref
        return handle

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_method, (self._handle(), self._method_name)

    def _call(self, args: Any, kwargs: Any, options: MethodOptions, retry: Retry, name: str) -> Any:
        if options.decorator:
            decorator = invocation.unpickled(options.decorator)
            return invocation.invoke(
                decorator, lambda args, kwargs: self._submit(args, kwargs, options, retry, name), args, kwargs
            )
        return self._submit(args, kwargs, options, retry, name)

    def _submit(self, args: Any, kwargs: Any, options: MethodOptions, retry: Retry, name: str) -> Any:
        self._check(args, kwargs)
        shape, method = self._shape, self._method_name
        if options.tensor_transport:
            tensor_transport.check_call(
                self._task_name, options.tensor_transport, options.num_returns, shape.groups
            )
            args = (tensor_transport.call_and_keep, method, options.tensor_transport, *args)
            method = "__ray_call__"
        retries = options.max_task_retries
        return current().actors.call(
            self._actor,
            method,
            args,
            kwargs,
            options.num_returns,
            shape.max_task_retries if retries is None else retries,
            retry,
            name,
            options.concurrency_group,
            shape.max_pending_calls,
            options.stream,
        )


class _BoundMethod:
    """`handle.method.options(...)`."""

    _VALID = frozenset(
        "num_returns name concurrency_group max_task_retries retry_exceptions enable_task_events tensor_transport "
        "_labels _generator_backpressure_num_objects _generator_backpressure_num_bytes".split()
    )

    def __init__(self, actor_method: ActorMethod, options: Mapping[str, Any]) -> None:
        if "_num_objects_per_yield" in options:
            raise ValueError(
                "_num_objects_per_yield cannot be overridden per call, as the method decides what it yields: "
                "write it in @method."
            )
        unknown = options.keys() - self._VALID
        if unknown:
            raise TypeError(
                f"A call got an unexpected keyword argument {', '.join(sorted(unknown))}. "
                f"Calls have: {', '.join(sorted(self._VALID))}."
            )
        self._method = actor_method
        self._given = options
        defaults = actor_method._options
        group = options.get("concurrency_group") or defaults.concurrency_group
        if group and group not in actor_method._shape.groups:
            raise ValueError(
                unknown_group(repr(actor_method._method_name), group, actor_method._shape.groups)
            )
        _options.validate_stream(options)
        _options.require_generator(
            options, defaults.is_generator, f"{actor_method._shape.class_name}.{actor_method._method_name}"
        )
        stream = _options.changed_stream_options(defaults.stream, options)
        count = options.get("num_returns")
        if count is not None:
            _check_num_returns(count)
        name = options.get("name")
        if name is not None and not isinstance(name, str):
            raise TypeError(f"name={name!r}: the name of a call is a string.")
        self._name = name or actor_method._task_name
        self._retry = actor_method._retry
        if options.get("retry_exceptions") is not None:
            check_retry(options["retry_exceptions"])
            chosen = options["retry_exceptions"]
            self._retry = chosen if isinstance(chosen, bool) else tuple(chosen)
        retries = options.get("max_task_retries")
        self._options = msgspec.structs.replace(
            defaults,
            num_returns=defaults.num_returns if count is None else _options.num_returns(options, False),
            concurrency_group=group,
            max_task_retries=defaults.max_task_retries if retries is None else retries,
            stream=stream,
            tensor_transport=tensor_transport.normalized(options["tensor_transport"])
            if options.get("tensor_transport") is not None
            else defaults.tensor_transport,
        )

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """See `ActorMethod.remote`."""
        return self._method._call(args, kwargs, self._options, self._retry, self._name)

    def bind(self, *args: Any, **kwargs: Any) -> Any:
        """See `ActorMethod.bind`."""
        return self._method._bind(args, kwargs, self._options.num_returns, self._given)

    def __reduce__(self) -> tuple[Any, ...]:
        return _BoundMethod, (self._method, self._given)


def _check_num_returns(value: Any) -> None:
    if value in ("streaming", "dynamic"):
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"num_returns={value!r}: an integer is required, or 'streaming'.")
    if value < 0:
        raise ValueError(f"num_returns must be >= 0, but got {value}.")


class ActorHandle:
    """A reference to an actor. The actor lives until its last handle is gone, unless it is detached or killed."""

    # A prefix of its own, since an actor may have a method `_actor` or `_ref`.
    _ray_actor: Actor
    _ray_shape: ActorShape
    _ray_ref: ObjectRef | None  # counts the handles

    def __getattr__(self, name: str) -> ActorMethod:
        shape: ActorShape = self.__dict__["_ray_shape"]
        options = shape.methods.get(name)
        if options is None:
            raise AttributeError(
                f"'ActorHandle' object has no attribute '{name}' ({shape.class_name} neither)"
            )
        method = self.__dict__[name] = ActorMethod(self, name, options)
        return method

    def __dir__(self) -> list[str]:
        return list(self._ray_shape.methods)

    @property
    def _actor_id(self) -> ids.ActorID:
        return ids.ActorID(self._ray_actor.actor_id)

    @property
    def _ray_actor_id(self) -> ids.ActorID:
        return self._actor_id

    def _ray_kill(self, no_restart: bool) -> None:
        """See `runtime.api.kill`."""
        actors = current().actors
        actors.check(self._ray_actor)
        reply = actors.kill(self._ray_actor, no_restart)
        if isinstance(reply, ErrorReply):
            raise exceptions.RaySystemError(f"cannot kill {self!r}: {reply.message}")

    def __repr__(self) -> str:
        return f"Actor({self._ray_shape.class_name}, {self._ray_actor.actor_id.hex()})"

    def __hash__(self) -> int:
        return hash(self._ray_actor.actor_id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ActorHandle) and self._ray_actor.actor_id == other._ray_actor.actor_id

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self._ray_actor.actor_id, msgspec.msgpack.encode(self._ray_shape), self._ray_ref)


def new_handle(core: Core, actor: Actor, shape: ActorShape, counted: bool = True) -> ActorHandle:
    handle = ActorHandle.__new__(ActorHandle)
    handle._ray_actor = actor
    handle._ray_shape = shape
    handle._ray_ref = None
    if counted and actor.handle is not None:
        with core.lock:
            handle._ray_ref = core.objects.new_ref(actor.handle)
    return handle


def _rebuild(actor_id: bytes, shape: bytes, ref: ObjectRef | None) -> ActorHandle:
    core = current()
    decoded = decode_shape(shape)
    entry = ref._entry if ref is not None and collector.borrows else None
    actor = core.actors.actor(actor_id, entry, decoded.ordered)
    return new_handle(core, actor, decoded, counted=entry is not None)


def _rebuild_method(handle: ActorHandle, name: str) -> ActorMethod:
    return ActorMethod(handle, name, handle._ray_shape.methods[name])


def handle_of(core: Core, info: ActorInfo) -> ActorHandle:
    """A handle for an actor known to the control store. It does not keep the actor alive."""
    shape = decode_shape(info.spec.methods)
    return new_handle(core, core.actors.actor(info.actor_id, None, shape.ordered), shape, counted=False)
