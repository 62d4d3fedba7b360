"""A signal handler may raise unless its thread holds one of the locks."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from runtime._transport.interrupts import Interrupts


def test_not_while_the_thread_holds_any_of_the_locks() -> None:
    one, other = threading.RLock(), threading.RLock()
    interrupts = Interrupts(one, other)
    again = threading.Event()
    assert interrupts.may_raise(None, again.set)
    assert not again.is_set()
    for lock in (one, other):
        again.clear()
        with lock:
            assert not interrupts.may_raise(None, again.set)
        assert again.wait(60)


def test_locks_of_other_threads_do_not_matter() -> None:
    lock = threading.RLock()
    interrupts = Interrupts(lock)
    may: list[bool] = []
    with lock:
        thread = threading.Thread(target=lambda: may.append(interrupts.may_raise(None, lambda: None)))
        thread.start()
        thread.join()
    assert may == [True]


def test_not_inside_a_finalizer_of_this_package() -> None:
    """An exception there would only be reported: the interrupt would be lost."""
    interrupts = Interrupts(threading.RLock())
    may: list[bool] = []
    again = threading.Event()

    def finalizer(module: str, name: str) -> Callable[[], None]:
        def asked() -> None:
            may.append(interrupts.may_raise(sys._getframe(), again.set))

        program = f"def {name}(): asked()"
        names: dict[str, Any] = {"__name__": module, "asked": asked}
        exec(program, names)
        made: Callable[[], None] = names[name]
        return made

    finalizer("runtime.object_ref", "__del__")()
    assert may == [False]
    assert again.wait(60)
    finalizer("runtime._owner.store", "died")()
    finalizer("runtime.object_ref", "binary")()
    finalizer("program", "__del__")()  # one of a program may wait for anything
    assert may == [False, False, True, True]
