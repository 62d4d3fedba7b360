"""A task on the main thread is interrupted, and only that one."""

from __future__ import annotations

import builtins
import importlib
import pathlib
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from runtime._executor import main_thread
from runtime._executor.main_thread import MainThread
from runtime._owner.context import Execution
from tests.runtime._executor.stand_ins import Pump


@pytest.fixture
def pump() -> Pump:
    return Pump()


@pytest.fixture
def main(pump: Any) -> Iterator[MainThread]:
    before = signal.getsignal(signal.SIGINT)
    yield MainThread(pump, threading.current_thread())
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def running() -> Execution:
    return Execution(b"t" * 24, "name", "module.name", None)


def test_what_runs_is_interrupted(main: MainThread, running: Execution) -> None:
    main.running = running
    with pytest.raises(KeyboardInterrupt):
        main.interrupt(running)


def test_a_task_that_is_over_when_the_signal_comes_interrupts_nobody(
    main: MainThread, running: Execution
) -> None:
    main.interrupt(running)
    main.running = Execution(b"u" * 24, "next", "module.next", None)
    main.interrupt(running)


def test_a_signal_from_elsewhere_interrupts_nobody(main: MainThread, running: Execution) -> None:
    main.running = running
    signal.raise_signal(signal.SIGINT)


def test_it_is_interrupted_once(main: MainThread, running: Execution) -> None:
    main.running = running
    with pytest.raises(KeyboardInterrupt):
        main.interrupt(running)
    signal.raise_signal(signal.SIGINT)


def test_a_thread_that_changes_the_engine_is_not_interrupted_in_it(
    main: MainThread, pump: Pump, running: Execution
) -> None:
    main.running = running
    pump.may_interrupt = False
    main.interrupt(running)
    pump.may_interrupt = True
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)  # the pump sends it again


def test_what_is_held_back_is_raised_afterwards(main: MainThread, running: Execution) -> None:
    main.running = running
    main.hold_back()
    main.hold_back()
    main.interrupt(running)
    assert main.is_interrupted
    main.let_through()
    with pytest.raises(KeyboardInterrupt):
        main.let_through()
    assert not main.is_interrupted
    main.hold_back()
    main.let_through()


def test_an_import_ends_before_its_task_is_interrupted(
    main: MainThread, running: Execution, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package of compiled modules whose import is broken off cannot be imported in that process any more."""
    module = "imported_by_a_cancelled_task"
    (tmp_path / f"{module}.py").write_text(
        "import threading\nINTERRUPT()\nthreading.Event().wait(0.05)\nDONE = True\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(builtins, "INTERRUPT", lambda: main.interrupt(running), raising=False)
    main.running = running

    def task() -> None:
        importlib.import_module(module)
        threading.Event().wait(60)

    with pytest.raises(KeyboardInterrupt):
        task()
    assert sys.modules.pop(module).DONE


def test_an_import_that_does_not_end_is_interrupted(
    main: MainThread, running: Execution, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "imported_for_ever"
    (tmp_path / f"{module}.py").write_text("import threading\nINTERRUPT()\nthreading.Event().wait(60)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(builtins, "INTERRUPT", lambda: main.interrupt(running), raising=False)
    monkeypatch.setattr(main_thread, "IMPORT_GRACE_S", 0.05)
    main.running = running
    with pytest.raises(KeyboardInterrupt):
        importlib.import_module(module)
    assert module not in sys.modules
