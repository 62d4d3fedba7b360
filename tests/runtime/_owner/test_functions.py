"""Functions on their way: pickled once, known by their digest, loaded once."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest

from runtime import exceptions
from runtime._owner import functions
from runtime._owner.functions import Function, Functions
from runtime._ownership.released import Released
from runtime._wire.messages.base import ErrorKind, ErrorReply, Ok
from runtime._wire.messages.control import KvGet, KvPut, KvValue
from runtime._wire.messages.worker import DefineFunction, ForgetFunctions


class Connection:
    """To a worker, or from a caller."""

    def __init__(self) -> None:
        self.sent_functions: set[bytes] = set()
        self.sent: list[Any] = []

    def send(self, message: Any) -> None:
        self.sent.append(message)


class Core:
    """A process whose control store is a dict."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.released = Released(lambda: None)
        self.workers: list[Connection] = []
        self.kept: dict[bytes, bytes] = {}
        self.requests: list[Any] = []
        self.down = False

    def peers(self) -> list[Connection]:
        return self.workers

    def drain(self) -> None:
        gc.collect()
        while self.released:
            self.released.popleft().abandon()

    def call_agent(self, request: Any, _timeout_s: float | None = None) -> Any:
        self.requests.append(request)
        if self.down:
            return ErrorReply(ErrorKind.UNAVAILABLE, "the control store is away")
        if isinstance(request, KvPut):
            self.kept[request.key] = request.value
            return Ok()
        assert isinstance(request, KvGet)
        return KvValue(self.kept.get(request.key))

    ask = call_agent


@pytest.fixture
def core() -> Core:
    return Core()


@pytest.fixture
def known(core: Core) -> Functions:
    return Functions(core, core.released)  # type: ignore[arg-type]


def define(known: Functions, function: Function, caller: Any = None) -> None:
    known.on_define(caller, DefineFunction(function.key, function.pickled, function.name), 0)


def test_a_function_that_was_sent_is_loaded(known: Functions) -> None:
    offset = 3
    function = Function(lambda value: value + offset, "add")
    define(known, function)
    assert known.load(function.key)(4) == 7
    assert known.name(function.key) == "add"


def test_it_is_loaded_once(known: Functions) -> None:
    function = Function(lambda: None, "f")
    define(known, function)
    assert known.load(function.key) is known.load(function.key)


def test_equal_functions_have_equal_keys() -> None:
    assert Function(max, "max").key == Function(max, "max").key
    assert Function(max, "max").key != Function(min, "min").key


def test_a_class_that_nobody_sent_comes_from_the_control_store(core: Core, known: Functions) -> None:
    class Counter:
        start = 5

    function = Function(Counter, "Counter")
    known.publish(function)
    other = Functions(core, core.released)  # type: ignore[arg-type]
    assert other.load(function.key).start == 5


def test_it_is_published_once(core: Core, known: Functions) -> None:
    function = Function(max, "max")
    known.publish(function)
    known.publish(function)
    assert len(core.requests) == 1


def test_publishing_fails_loudly_and_can_be_repeated(core: Core, known: Functions) -> None:
    function = Function(max, "max")
    core.down = True
    with pytest.raises(exceptions.RaySystemError, match="cannot publish max"):
        known.publish(function)
    core.down = False
    known.publish(function)
    assert function.key in core.kept


def test_a_definition_that_is_nowhere(known: Functions) -> None:
    with pytest.raises(LookupError, match="not in the control store"):
        known.load(b"k" * 16)


def test_an_unknown_function_has_no_name(known: Functions) -> None:
    assert known.name(b"k" * 16) == ""


def test_a_function_that_captures_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "TOO_LARGE_BYTES", 1000)
    array = bytes(2000)
    with pytest.raises(ValueError, match="big is too large"):
        Function(lambda: array, "big")


def test_a_module_that_is_missing_here_is_named(known: Functions) -> None:
    known.on_define(None, DefineFunction(b"k", b"cmodule_of_nowhere\nf\n.", "f"), 0)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match=r"failed to import on the worker.*module_of_nowhere"):
        known.load(b"k")


# ---------------------------------------------------------------- functions that nobody needs any more


def connected(core: Core, *keys: bytes) -> Connection:
    """A worker that was sent these."""
    connection = Connection()
    connection.sent_functions.update(keys)
    core.workers.append(connection)
    return connection


def test_workers_hear_of_a_function_that_is_gone(core: Core, known: Functions) -> None:
    function = Function(lambda: 1, "f")
    known.use(function)
    known.use(function)
    key = function.key
    had, had_not = connected(core, key, b"other"), connected(core, b"other")
    core.drain()
    assert had.sent == []
    del function
    core.drain()
    assert had.sent == [ForgetFunctions([key])]
    assert had.sent_functions == {b"other"}  # so it is sent again with the next push
    assert had_not.sent == []


def test_an_equal_function_keeps_it_at_the_workers(core: Core, known: Functions) -> None:
    def make() -> Function:
        return Function(max, "max")

    one, other = make(), make()
    for function in (one, other):
        known.use(function)
    worker = connected(core, one.key)
    del one, function
    core.drain()
    assert worker.sent == []
    del other
    core.drain()
    assert len(worker.sent) == 1


def test_nobody_hears_of_what_goes_after_the_end(core: Core, known: Functions) -> None:
    function = Function(lambda: 1, "f")
    known.use(function)
    known.close()
    del function
    gc.collect()
    assert not core.released


def test_a_worker_forgets_what_no_caller_can_push(known: Functions) -> None:
    function = Function(lambda: 5, "f", max_calls=3)
    one, other = Connection(), Connection()
    define(known, function, one)
    define(known, function, other)
    known.on_forget(one, ForgetFunctions([function.key, b"unknown"]), 0)  # type: ignore[arg-type]
    assert known.load(function.key)() == 5
    known.caller_lost(other)  # type: ignore[arg-type]
    assert known.name(function.key) == ""
    with pytest.raises(LookupError):
        known.load(function.key)
    define(known, function, other)
    assert known.load(function.key)() == 5


def test_a_thousand_redefinitions_leave_one(core: Core, known: Functions) -> None:
    caller, worker = Connection(), connected(core)
    for number in range(1000):
        function = Function(lambda number=number: number, "f")
        known.use(function)
        define(known, function, caller)
        assert known.load(function.key)() == number
        worker.sent_functions.add(function.key)
        while core.released:
            core.released.popleft().abandon()
        for message in worker.sent:
            known.on_forget(caller, message, 0)  # type: ignore[arg-type]
        worker.sent.clear()
    assert len(known._pickled) <= 2
    assert len(known._loaded) <= 2
    assert len(worker.sent_functions) <= 2
