"""Functions on their way: pickled once, known by their digest, loaded once."""

from __future__ import annotations

from typing import Any

import pytest

from runtime import exceptions
from runtime._wire.messages.base import ErrorKind, ErrorReply, Ok
from runtime._wire.messages.control import KvGet, KvPut, KvValue
from runtime._wire.messages.worker import DefineFunction
from runtime._worker import functions
from runtime._worker.functions import Function, Functions


class Core:
    """A process whose control store is a dict."""

    def __init__(self) -> None:
        self.kept: dict[bytes, bytes] = {}
        self.requests: list[Any] = []
        self.down = False

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
    return Functions(core)  # type: ignore[arg-type]


def define(known: Functions, function: Function) -> None:
    known.on_define(None, DefineFunction(function.key, function.pickled, function.name), 0)  # type: ignore[arg-type]


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
    other = Functions(core)  # type: ignore[arg-type]
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
