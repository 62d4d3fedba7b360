from __future__ import annotations

import gc

from runtime._ownership.released import Released


def test_what_dies_is_kept_in_order() -> None:
    released = Released(lambda: None)
    released.add(1)
    released.add(2)
    assert list(released) == [1, 2]


def test_only_one_that_rests_is_woken_and_once() -> None:
    wakes: list[int] = []
    released = Released(lambda: wakes.append(1))
    released.add(1)
    assert not wakes
    released.resting = True
    released.add(2)
    released.add(3)
    assert wakes == [1]
    assert not released.resting


def test_it_is_written_to_while_the_garbage_collector_runs() -> None:
    wakes: list[int] = []
    released = Released(lambda: wakes.append(1))
    released.resting = True

    class Dying:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            released.add("gone")

    Dying()
    gc.collect()
    assert list(released) == ["gone"]
    assert wakes == [1]
