"""The error of a task: the remote exception, its traceback, and the class that is both.

Public as `runtime.exceptions.RayTaskError`.
"""

from __future__ import annotations

import functools
import logging
import os
import pickle
import traceback
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any, Self

from runtime._wire import serialization

logger = logging.getLogger(__name__)

_PACKAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")
"""What the files of our own frames begin with."""
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class made by Python code


class RayError(Exception):
    """Base class of the errors of the engine."""


class UnserializableException(RayError):
    """The remote exception could not be rebuilt here.

    Args:
        original_stack_trace: the remote traceback as text.
    """

    def __init__(self, original_stack_trace: str) -> None:
        super().__init__(original_stack_trace)
        self._original_stack_trace = original_stack_trace

    def __str__(self) -> str:
        return (
            "Failed to deserialize exception: it was pickled there and cannot be rebuilt here. Give its class a "
            "`__reduce__`, or pass all constructor arguments on to `super().__init__()`. Original exception:\n"
            f"{self._original_stack_trace}"
        )


class RayTaskError(RayError):
    """A task or an actor method raised.

    `get` raises `as_instanceof_cause()`: an instance of both this class and the class of the user's
    exception, so `except ValueError` works across processes. `str()` is the remote traceback without the
    engine's frames.

    Attributes:
        function_name: what was called, `module.function` or `Class.method`.
        traceback_str: the remote traceback, with a first line that names call, process and host.
        cause: the exception that the user's code raised.
        proctitle: title of the remote process.
        pid: its process id.
        ip: its host.
        actor_repr: `repr` of the actor instance when the call was an actor's.
    """

    def __init__(
        self,
        function_name: str,
        traceback_str: str,
        cause: BaseException | None,
        proctitle: str | None = None,
        pid: int | None = None,
        ip: str | None = None,
        actor_repr: str | None = None,
        actor_id: str | None = None,
    ) -> None:
        super().__init__(function_name, traceback_str, cause, proctitle, pid, ip)
        self.function_name = function_name
        self.traceback_str = traceback_str
        self.cause = cause
        self.proctitle = proctitle
        self.pid = pid
        self.ip = ip
        self.actor_repr = actor_repr
        self._actor_id = actor_id

    @classmethod
    def from_exception(
        cls,
        error: BaseException,
        function_name: str,
        *,
        proctitle: str | None = None,
        pid: int | None = None,
        ip: str | None = None,
        actor_repr: str | None = None,
        actor_id: str | None = None,
    ) -> Self:
        """The error to reply with after user code raised `error`.

        Unwraps an error that came out of a nested `get`: `cause` is always the original exception of user code, and
        the traceback shows every process on the way.
        """
        title = proctitle or f"ray::{function_name}()"
        facts = {"pid": pid, "ip": ip, "actor_id": actor_id, "repr": actor_repr}
        where = ", ".join(f"{name}={fact}" for name, fact in facts.items() if fact is not None)
        text = f"{title} ({where})\n" + format_user_traceback(error)
        return cls(function_name, text, _first_cause(error), proctitle, pid, ip, actor_repr, actor_id)

    @classmethod
    def from_argument(
        cls, error: BaseException, function_name: str, pid: int | None = None, ip: str | None = None
    ) -> Self:
        """The error of a call that did not run, because one of its arguments failed with `error`.

        Args:
            pid: the process that found out: the caller's.
        """
        text = (
            f"ray::{function_name}() (pid={pid}, ip={ip})\n"
            "  At least one of the input arguments for this task could not be computed:\n"
            f"{class_name(type(error))}: {error}"
        )
        return cls(function_name, text, _first_cause(error), pid=pid, ip=ip)

    def because_of(self, cause: BaseException) -> Self:
        """The same error with another cause, whose traceback is appended."""
        text = f"{self.traceback_str}\n{class_name(type(cause))}: {cause}"
        facts = (self.proctitle, self.pid, self.ip, self.actor_repr, self._actor_id)
        return type(self)(self.function_name, text, cause, *facts)

    def as_instanceof_cause(self) -> RayTaskError:
        """This error as an instance of the cause's class as well.

        Returns this error unchanged if there is no cause, its class is a base class of this one, or its class cannot
        be subclassed. `cause` is the user's exception in any case.
        """
        cause = _first_cause(self.cause) if self.cause is not None else None
        if cause is None or issubclass(RayTaskError, type(cause)):
            return self
        try:
            return _make_dual(self, cause)
        except Exception as error:
            logger.warning(
                "User exception type %s can't be subclassed (%s). It is raised as RayTaskError only, and its `cause` "
                "holds the original.",
                type(cause),
                error,
            )
            return self

    def __str__(self) -> str:
        return self.traceback_str.rstrip("\n")

    def __reduce__(self) -> tuple[Any, ...]:
        return _load_task_error, (
            type(self),
            self.function_name,
            self.traceback_str,
            _dump_cause(self.cause, self.traceback_str),
            (self.proctitle, self.pid, self.ip, self.actor_repr, self._actor_id),
        )


def format_user_traceback(error: BaseException) -> str:
    """The traceback of `error` and its causes, without frames of the engine."""
    try:
        rendered = traceback.TracebackException.from_exception(error)
    except Exception as failure:  # the user's class may answer wrongly when it is asked for its notes
        name = class_name(type(error))
        return f"{name} (its traceback cannot be shown: {type(failure).__name__}: {failure})"
    pending, seen = [rendered], set[int]()
    while pending:
        one = pending.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        kept = [frame for frame in one.stack if not frame.filename.startswith(_PACKAGE)]
        one.stack = traceback.StackSummary.from_list(kept)
        pending += [other for other in (one.__cause__, one.__context__) if other is not None]
        pending += one.exceptions or []
    text = "".join(rendered.format())
    return text.removeprefix("Traceback (most recent call last):\n").rstrip("\n")


def class_name(cls: type) -> str:
    """How tracebacks name a class of errors."""
    return f"{cls.__module__}.{cls.__qualname__}"


def _first_cause(error: BaseException) -> BaseException:
    while isinstance(error, RayTaskError):
        # Not `error.cause`: the user's class may have a property of that name.
        cause: BaseException | None = _attributes(error)["cause"]
        if cause is None:
            break
        error = cause
    return error


def _attributes(error: BaseException) -> dict[str, Any]:
    """The error's own `__dict__`, also where the user's class has a property of that name."""
    found: dict[str, Any] = vars(BaseException)["__dict__"].__get__(error)
    return found


def _dump_cause(cause: BaseException | None, traceback_str: str) -> bytes:
    try:
        return serialization.dumps(cause)
    except Exception as error:
        name = type(cause).__qualname__
        return pickle.dumps(
            RayError(f"Exception {name} isn't serializable: {error}. It was:\n{traceback_str}")
        )


def _load_task_error(
    cls: type[RayTaskError], function_name: str, traceback_str: str, cause: bytes, rest: tuple[Any, ...]
) -> RayTaskError | UnserializableException:
    try:
        loaded = pickle.loads(cause)
    except Exception as error:
        # The constructor of the user's class may ask for more than its `args`: keep what can be read.
        return UnserializableException(
            f"{class_name(cls)}: {traceback_str}\n(loading it failed: {type(error).__name__}: {error})"
        )
    return cls(function_name, traceback_str, loaded, *rest)


def _load_dual(plain: RayTaskError | UnserializableException) -> RayError:
    return plain.as_instanceof_cause() if isinstance(plain, RayTaskError) else plain


class _DualError(RayTaskError):
    """What all `RayTaskError(<Cause>)` classes share. Built without running the cause's constructor."""

    _plain: RayTaskError
    args: Any = vars(BaseException)["args"]  # which the cause's class may have made read-only

    def __init__(self, *_ignored: object) -> None:
        """Everything is filled in by `_make_dual`."""

    def as_instanceof_cause(self) -> RayTaskError:
        return self

    def __str__(self) -> str:
        return str(self._plain)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.cause!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _load_dual, (self._plain,)


@functools.lru_cache(maxsize=512)
def _dual_class(cause_class: Any) -> type[_DualError]:
    name = f"RayTaskError({cause_class.__name__})"
    body = {"__module__": RayTaskError.__module__, "__qualname__": name, "__doc__": cause_class.__doc__}
    return type(name, (_DualError, cause_class), body)


def _make_dual(plain: RayTaskError, cause: BaseException) -> RayTaskError:
    cause_class: Any = type(cause)
    cls = _dual_class(cause_class)
    # The nearest class made in C allocates the instance; no constructor written in Python is called.
    builtin: Any = next(base for base in cause_class.__mro__ if not base.__flags__ & _HEAP_TYPE)
    if isinstance(cause, BaseExceptionGroup):
        dual: Any = builtin.__new__(cls, cause.message, list(cause.exceptions))
    else:
        allocates: Any = cls
        while allocates.__flags__ & _HEAP_TYPE:
            allocates = (
                allocates.__base__
            )  # by layout, which for MemoryError is not its first class made in C
        dual = allocates.__new__(cls)
        vars(BaseException)["args"].__set__(dual, (cause,))  # the user's class may be frozen
    _copy_slots(cause, dual)
    attributes = _attributes(dual)
    attributes.update(vars(plain))
    attributes.update(_attributes(cause))
    attributes.update(cause=cause, _plain=plain)
    attributes.pop("__notes__", None)  # the text of the remote traceback has them
    assert isinstance(dual, RayTaskError)
    return dual


def _copy_slots(source: BaseException, target: BaseException) -> None:
    """Copies what lives outside `__dict__`: `OSError.errno`, `SyntaxError.lineno`, a class's `__slots__`."""
    for base in type(source).__mro__:
        for name, slot in vars(base).items():
            if name.startswith("__") or name == "args":
                continue
            if not isinstance(slot, MemberDescriptorType | GetSetDescriptorType):
                continue
            try:
                slot.__set__(target, slot.__get__(source, type(source)))
            except (AttributeError, TypeError):
                continue  # unset in the source, or read-only and set by the allocation


for _public in (RayError, RayTaskError, UnserializableException):
    _public.__module__ = "runtime.exceptions"
