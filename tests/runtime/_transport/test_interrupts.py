"""A signal handler may raise unless its thread holds one of the locks."""

from __future__ import annotations

import threading

from runtime._transport.interrupts import Interrupts


def test_not_while_the_thread_holds_any_of_the_locks() -> None:
    one, other = threading.RLock(), threading.RLock()
    interrupts = Interrupts(one, other)
    again = threading.Event()
    assert interrupts.may_raise(again.set)
    assert not again.is_set()
    for lock in (one, other):
        again.clear()
        with lock:
            assert not interrupts.may_raise(again.set)
        assert again.wait(60)


def test_locks_of_other_threads_do_not_matter() -> None:
    lock = threading.RLock()
    interrupts = Interrupts(lock)
    may: list[bool] = []
    with lock:
        thread = threading.Thread(target=lambda: may.append(interrupts.may_raise(lambda: None)))
        thread.start()
        thread.join()
    assert may == [True]
