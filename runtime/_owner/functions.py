"""Functions and classes on their way to workers: pickled once, sent once per connection, loaded once per process."""

from __future__ import annotations

import hashlib
import inspect
import logging
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from runtime import exceptions
from runtime._ownership.released import NOWHERE, Released
from runtime._transport.connection import Connection
from runtime._wire import serialization
from runtime._wire.messages.base import ErrorReply
from runtime._wire.messages.control import DEFINITIONS, KvGet, KvPut, KvValue
from runtime._wire.messages.worker import DefineFunction, ForgetFunctions
from runtime.object_ref import FORBIDS, is_forbidden_out_of_band

from .links import Links

log = logging.getLogger("runtime")
TOO_LARGE_BYTES = 95 * 2**20
LARGE_BYTES = 10 * 2**20
"""From here on a warning says that a function is large: every worker that runs it has it in memory."""
_SMALLER = (
    "All that it refers to travels with it: does it refer to a large array or another large object? Give that to "
    "ray.put(), and the function its reference."
)


def full_name(defined: Any, name: str = "") -> str:
    """How a function or class is called where it runs: its module and name. What a program itself defines has the name
    of its file, as its `__main__` is not the worker's.

    Args:
        name: in place of its own.
    """
    module = defined.__module__
    if module == "__main__":
        codes = [part.__code__ for part in (defined, *vars(defined).values()) if hasattr(part, "__code__")]
        module = (inspect.getmodulename(codes[0].co_filename) if codes else None) or module
    return f"{module}.{name or defined.__name__}"


def is_async(cls: type) -> bool:
    """Whether any method of a class is a coroutine: then its actor runs on an event loop."""
    members: dict[str, Any] = {}
    for base in reversed(cls.__mro__[:-1]):  # `object` has none; what a class overrides does not count
        members.update(vars(base))
    functions = (m.__func__ if isinstance(m, staticmethod | classmethod) else m for m in members.values())
    return any(
        inspect.isfunction(function)
        and (inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function))
        for function in functions
    )


def shown_name(actor: Any, class_name: str) -> str:
    """How an actor is called in front of its output: by its own `__repr__`, or else by its class."""
    cls: Any = type(actor)
    return class_name if cls.__repr__ is object.__repr__ else instance_name(actor, class_name)


def instance_name(actor: Any, class_name: str) -> str:
    """How errors name an actor: by `repr`. By its class if that fails, or while there is no instance."""
    if actor is None:
        return class_name
    try:
        return repr(actor)
    except Exception:
        return class_name


class Function:
    """A pickled function or class. `key`: digest of what a worker must know; `full_name`: what it is called there;
    `held` keeps the objects in its closure alive."""

    __slots__ = ("full_name", "held", "key", "max_calls", "name", "on_unused", "pickled", "published")

    def __init__(self, function: Any, name: str, max_calls: int = 0) -> None:
        is_class = isinstance(function, type)
        kind = "actor class" if is_class else "remote function"
        try:
            self.pickled, held = serialization.dumps_function(function)
        except TypeError as error:
            what = kind if is_class else "function"
            raise serialization.not_serializable(f"the {what} {name}", error) from error
        for entry in held:
            if is_forbidden_out_of_band(entry.object_id):
                raise exceptions.OufOfBandObjectRefSerializationException(
                    f"Could not serialize {name}: it refers to the object {entry.object_id.hex()}, and it is not "
                    f"allowed to serialize references outside of calls while {FORBIDS} is 0. Pass it as an argument."
                )
        if len(self.pickled) > TOO_LARGE_BYTES:
            raise ValueError(
                f"The {kind} {name} is too large ({len(self.pickled) >> 20} MiB > FUNCTION_SIZE_ERROR_THRESHOLD="
                f"{TOO_LARGE_BYTES >> 20} MiB). {_SMALLER}"
            )
        if len(self.pickled) > LARGE_BYTES:
            log.warning("The %s %s is very large (%d MiB). %s", kind, name, len(self.pickled) >> 20, _SMALLER)
        limit = str(max_calls).encode() if max_calls else b""
        self._describe(
            hashlib.sha256(self.pickled + limit).digest()[:16], name, full_name(function), max_calls, held
        )

    @classmethod
    def of_pickled(
        cls, pickled: bytes, key: bytes, name: str, full_name: str, max_calls: int, held: list[Any]
    ) -> Function:
        """A function that another process has pickled, with the objects in its closure."""
        function = cls.__new__(cls)
        function.pickled = pickled
        function._describe(key, name, full_name, max_calls, held)
        return function

    def _describe(self, key: bytes, name: str, full_name: str, max_calls: int, held: list[Any]) -> None:
        self.key = key
        self.max_calls = max_calls
        self.name = name
        self.full_name = full_name
        self.published = False
        self.on_unused: Callable[[], None] | None = None
        self.held = held  # only now, for `__del__` lets go of what is held
        for entry in held:
            entry.hold()  # an actor has holds of its own: it may be made again when its class is gone here

    def __del__(self) -> None:
        for entry in getattr(self, "held", ()):
            entry.released.add(entry)
        on_unused = getattr(self, "on_unused", None)
        if on_unused is not None:
            on_unused()


class _Unused:
    """A function of ours that nothing refers to any more, on its way through `Released`."""

    __slots__ = ("_functions", "_key")

    def __init__(self, functions: Functions, key: bytes) -> None:
        self._functions = functions
        self._key = key

    def abandon(self) -> None:
        """Under the lock."""
        self._functions.unused(self._key)


class Functions:
    """What this process was sent and has loaded, and what it has sent.

    A worker keeps a function while some caller that has sent it may push it. A caller tells its workers when nothing
    refers to a function any more; it sends the function again if an equal one is called later.
    """

    def __init__(self, links: Links, released: Released) -> None:
        self._links = links
        self._released = released
        self._pickled: dict[bytes, tuple[bytes, str]] = {}
        self._loaded: dict[bytes, Any] = {}
        self._callers: dict[bytes, set[Connection]] = {}  # who may push it
        self._in_use: Counter[bytes] = Counter()  # how many functions of ours have a key
        self.max_calls: dict[bytes, int] = {}

    # ------------------------------------------------------------ the caller's side

    def use(self, function: Function) -> None:
        """A function of ours may be sent from now on, until it dies."""
        if function.on_unused is None:
            key = function.key
            with self._links.lock:
                self._in_use[key] += 1
            # Made now: when the interpreter ends, a function may die after the names of this module.
            function.on_unused = partial(self._died, _Unused(self, key))

    def _died(self, unused: _Unused) -> None:
        self._released.add(unused)

    def unused(self, key: bytes) -> None:
        """A function of ours is gone. Under the lock."""
        self._in_use[key] -= 1
        if self._in_use[key]:
            return  # an equal one is there
        del self._in_use[key]
        for connection in self._links.peers():
            if key in connection.sent_functions:
                connection.sent_functions.discard(key)
                connection.send(ForgetFunctions([key]))

    def close(self) -> None:
        """The process leaves the cluster: nobody needs to hear of what dies later."""
        self._released = NOWHERE

    # ------------------------------------------------------------ the worker's side

    def on_define(self, connection: Connection, message: DefineFunction, _correlation: int) -> None:
        self._callers.setdefault(message.key, set()).add(connection)
        self._pickled[message.key] = (message.pickled, message.name)
        if message.max_calls:
            self.max_calls[message.key] = message.max_calls

    def on_forget(self, connection: Connection, message: ForgetFunctions, _correlation: int) -> None:
        for key in message.keys:
            self._forget(key, connection)

    def caller_lost(self, connection: Connection) -> None:
        """A caller is gone. Under the lock."""
        for key in [key for key, callers in self._callers.items() if connection in callers]:
            self._forget(key, connection)

    def _forget(self, key: bytes, connection: Connection) -> None:
        callers = self._callers.get(key, set())
        callers.discard(connection)
        if not callers:
            for table in (self._callers, self._pickled, self._loaded, self.max_calls):
                table.pop(key, None)

    def name(self, key: bytes) -> str:
        known = self._pickled.get(key)
        return known[1] if known else ""

    def load(self, key: bytes, class_name: str = "") -> Any:
        """The function or class of a key; a class that nobody sent comes from the control store.

        Args:
            class_name: of an actor.

        Raises:
            RuntimeError: it cannot be unpickled, e.g. because a module is missing here.
        """
        function = self._loaded.get(key)
        if function is None:
            known = self._pickled.get(key)
            if known is not None:
                pickled = known[0]
            else:
                reply = self._links.ask(KvGet(DEFINITIONS, key))
                assert isinstance(reply, KvValue)
                if reply.value is None:
                    raise LookupError(f"the definition {key.hex()} is not in the control store")
                pickled = reply.value
            try:
                function, _ = serialization.deserialize(pickled)
            except Exception as error:
                name = self.name(key)
                what = (
                    f"The remote function failed to import on the worker: {name}:"
                    if name
                    else f"The actor with name {class_name} failed to import on the worker:"
                )
                raise RuntimeError(
                    f"{what} {type(error).__name__}: {error}. Does it need a module that is missing there? A "
                    "runtime_env can bring it along."
                ) from error
            self._loaded[key] = function
        return function

    def publish(self, function: Function) -> None:
        """Puts a definition where it outlives this process: actors may be made again without us."""
        if not function.published:
            reply = self._links.call_agent(KvPut(DEFINITIONS, function.key, function.pickled, True))
            if isinstance(reply, ErrorReply):
                raise exceptions.RaySystemError(f"cannot publish {function.name}: {reply.message}")
            function.published = True
