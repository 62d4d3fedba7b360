"""Facts about actor classes and their methods: the defaults of `@method`, and what handles carry."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import cloudpickle
import msgspec

from runtime._api import invocation, tensor_transport
from runtime._api import options as _options
from runtime._api.signature import Parameters, parameters_of
from runtime._wire.messages.worker import StreamOptions

Retry = bool | tuple[type[BaseException], ...]
"""Whether a call runs again after an error of user code, or after which ones."""

_VALID = (
    "num_returns concurrency_group max_task_retries retry_exceptions _generator_backpressure_num_objects "
    "_generator_backpressure_num_bytes _num_objects_per_yield enable_task_events tensor_transport"
).split()


class MethodOptions(msgspec.Struct, frozen=True, array_like=True):
    """The defaults of one method."""

    num_returns: int = 1
    concurrency_group: str = ""
    max_task_retries: int | None = None
    retry_exceptions: bool = False
    parameters: Parameters | None = None
    is_generator: bool = False
    stream: StreamOptions | None = None
    retry_on: bytes = b""  # pickled tuple of the exception classes, where only those are retried
    decorator: bytes = b""  # pickled, see `invocation`
    tensor_transport: str = ""  # see `tensor_transport.normalized`

    def retry(self) -> Retry:
        """What `retry_exceptions` was given."""
        if self.retry_on:
            chosen: Retry = pickle.loads(self.retry_on)
            return chosen
        return self.retry_exceptions


@dataclass(frozen=True, slots=True)
class ActorClassMetadata:
    """An actor class for libraries: the original class and its options."""

    class_name: str
    modified_class: type
    num_cpus: float | None
    num_gpus: float | None
    resources: Mapping[str, float]
    max_restarts: int
    max_task_retries: int
    runtime_env: Mapping[str, Any] | None


class ActorShape(msgspec.Struct, frozen=True, array_like=True):
    """What a handle knows about its actor. Sent with handles and in the actor's spec."""

    class_name: str  # qualified
    methods: dict[str, MethodOptions]
    ordered: bool
    max_task_retries: int
    max_pending_calls: int
    detached: bool
    groups: list[str] = []  # the concurrency groups


decode_shape = msgspec.msgpack.Decoder(ActorShape).decode
"""Made here, by one thread: msgspec crashes when threads meet a type for the first time at the same moment."""


def method(*args: Any, **options: Any) -> Any:
    """Sets default options for the calls of a method of an actor class: `@method(num_returns=2)`.

    Args:
        args: the method, when there are no options.

    Options:
        num_returns (int or str, default 1, "streaming" for generators): references that a call returns: 0 or more, or
            "streaming" for an `ObjectRefGenerator`. "dynamic" is deprecated.
        concurrency_group (str, default: the actor's own): group of the actor in which the call runs.
        max_task_retries (int, default: the actor's): further attempts of the call after the actor died; -1: no limit.
        retry_exceptions (bool or list, default False): retry also when the method raised: any exception, or an
            instance of these classes.
        _generator_backpressure_num_objects (int, default -1): values that a generator may be ahead of its reader; -1:
            no limit. Not 0.
        _generator_backpressure_num_bytes (int, default -1): their size, beyond which one value may go; -1: no limit.
            Not 0.
        enable_task_events (bool, default True): without effect; calls are always listed by `util.state`.
        tensor_transport (str, default "object_store"): "gloo" or "nccl": torch tensors in the result stay in the actor
            until others fetch them, over a collective group; see `runtime.experimental.tensors`.
        _num_objects_per_yield (int, default 1): objects that a generator makes of each yielded tuple; 1 or more.

    Raises:
        AssertionError: methods have no such option, or `retry_exceptions` is neither a bool nor a list of exception
            classes.
        TypeError, ValueError: an option of generators has a wrong value.
    """
    for name in options:
        if name not in _VALID:
            raise AssertionError(
                f"Unexpected keyword argument to @method: {name!r}. Methods have: {', '.join(_VALID)}."
            )
    if "retry_exceptions" in options:
        check_retry(options["retry_exceptions"])
    tensor_transport.normalized(options.get("tensor_transport"))
    _options.validate_stream(options)
    if len(args) == 1 and not options and callable(args[0]):
        return args[0]

    def decorate(function: Any) -> Any:
        function.__runtime_method__ = options
        return function

    return decorate


def check_retry(value: Any) -> None:
    """Raises AssertionError unless `value` is a bool or a list of exception classes."""
    if isinstance(value, bool) or value is None:
        return
    if not isinstance(value, list | tuple) or not all(
        isinstance(item, type) and issubclass(item, BaseException) for item in value
    ):
        raise AssertionError(
            f"retry_exceptions can either be a bool or a list or tuple of exception types, not {value!r}."
        )


def packed_retry(value: Any) -> tuple[bool, bytes]:
    """`retry_exceptions` as `MethodOptions` keeps it."""
    if isinstance(value, list | tuple):
        return bool(value), cloudpickle.dumps(tuple(value)) if value else b""
    return bool(value), b""


def method_table(cls: type) -> dict[str, MethodOptions]:
    """The methods of handles with their defaults: functions only, no classes or other callable objects."""
    table = {}
    for name, member in inspect.getmembers(cls, inspect.isroutine):
        is_python = inspect.isfunction(member) or inspect.ismethod(member)
        if name.startswith("__") and name not in vars(cls) and not is_python:
            continue  # `object` has those
        is_static = isinstance(inspect.getattr_static(cls, name), staticmethod)
        table[name] = _options_of(member, getattr(member, "__runtime_method__", {}), is_static)
    table["__ray_ready__"] = table["__ray_terminate__"] = table["__ray_call__"] = MethodOptions()
    return table


def _options_of(member: Callable[..., Any], options: Mapping[str, Any], is_static: bool) -> MethodOptions:
    plain = inspect.unwrap(member)
    streams = inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain)
    _options.require_generator(options, streams, plain.__qualname__)
    retries, retry_on = packed_retry(options.get("retry_exceptions"))
    return MethodOptions(
        _options.num_returns(options, streams),
        options.get("concurrency_group") or "",
        options.get("max_task_retries"),
        retries,
        parameters_of(plain, skip_first=not is_static and not inspect.ismethod(plain)),
        streams,
        _options.stream_options(options),
        retry_on,
        invocation.pickled(member),
        tensor_transport.normalized(options.get("tensor_transport")),
    )


def groups_of(value: Any) -> dict[str, int]:
    """The option `concurrency_groups`: a dict from name to limit, or a list of dicts with both."""
    if isinstance(value, list):
        return {group["name"]: group["max_concurrency"] for group in value}
    return dict(value or {})


def check_groups(class_name: str, methods: Mapping[str, MethodOptions], groups: Mapping[str, int]) -> None:
    """Raises ValueError when a method names a group that the class does not have."""
    for name, options in methods.items():
        if options.concurrency_group and options.concurrency_group not in groups:
            raise ValueError(unknown_group(f"{class_name}.{name}", options.concurrency_group, groups))


def unknown_group(what: str, group: str, groups: Any) -> str:
    """The message for a concurrency group that an actor does not have."""
    known = ", ".join(groups) or "none"
    return (
        f"{what}: there is no concurrency group {group!r}; the actor has: {known}. "
        "Groups are declared with @remote(concurrency_groups={...})."
    )
