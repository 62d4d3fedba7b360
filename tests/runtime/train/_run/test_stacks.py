"""A rank that stalls says where it is."""

from __future__ import annotations

import logging
import threading

import pytest

from runtime.train._run import stacks
from runtime.train._run.stacks import Pace
from tests.polling import eventually


def test_a_stall_is_much_longer_than_usual() -> None:
    pace = Pace(0.0)
    assert [pace.stall_s(count, 20.0 * count) for count in range(4)] == [0.0] * 4  # one every 20 s
    assert pace.stall_s(3, 259.0) == 0.0
    assert pace.stall_s(3, 261.0) == 201.0
    assert pace.stall_s(3, 300.0) == 0.0  # it was told
    assert pace.stall_s(4, 301.0) == 0.0


def test_quick_reports_may_pause_for_a_minute() -> None:
    pace = Pace(0.0)
    pace.stall_s(1000, 1.0)
    assert pace.stall_s(1000, 60.0) == 0.0
    assert pace.stall_s(1000, 62.0) == 61.0


def test_nothing_is_usual_before_the_second_report() -> None:
    pace = Pace(0.0)
    assert pace.stall_s(0, 1e6) == 0.0
    pace.stall_s(1, 1e6)
    assert pace.stall_s(1, 1e8) == 0.0


def test_the_stack_is_logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(stacks, "LOOK_S", 0.001)
    monkeypatch.setattr(stacks, "STALL_S", 0.01)
    ended = threading.Event()
    caplog.set_level(logging.WARNING, stacks.log.name)
    stacks.watch(3, lambda: 2, lambda: "in train()", ended)
    try:
        eventually(lambda: "rank 3 has reported nothing" in caplog.text and "in train()" in caplog.text)
    finally:
        ended.set()
