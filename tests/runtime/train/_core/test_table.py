"""What a terminal shows of a run."""

from __future__ import annotations

from runtime.train._core.attempt import Attempt
from runtime.train._core.ranks import placed
from runtime.train._core.records import Reported
from runtime.train._core.table import Rates, RunView, brief, line, lines


def view(attempt: Attempt, **more: object) -> RunView:
    found = {"state": "RUNNING", "failures": 0, "committed": 0, "starting_s": 1.0, "ending_s": 0.0}
    return RunView(attempt=attempt.number, ranks=attempt.ranks(), **{**found, **more})  # type: ignore[arg-type]


def running() -> Attempt:
    attempt = Attempt(2, placed(["a", "b"]), ["x", "y"], [0, 0], (), ["a" * 20, "b" * 20])
    attempt.is_preparing = False
    attempt.active = {0, 1}
    attempt.pids = {0: 4711}
    return attempt


def test_a_row_for_each_rank() -> None:
    attempt = running()
    attempt.ledger.report(0, Reported(0, b"", "checkpoint", is_waiting=True))
    metrics = [{"loss": 0.123456, "note": "no number", "step": 7}, {}]
    shown = lines("a run", view(attempt, failures=1, metrics=metrics), [2.5, 0.0], 61.4)
    assert shown == [
        "a run: running, attempt 2, 1 failures, 61 s",
        "  rank  node      pid   state        reports  per s  last metrics",
        "  0     aaaaaaaa  4711  waits for 1  1        2.5    loss 0.1235, step 7",
        "  1     bbbbbbbb  ?     joins        0        0",
    ]


def test_the_states_of_ranks() -> None:
    attempt = running()
    attempt.active = {1}
    attempt.returned[0] = b""
    assert [each.state for each in attempt.ranks()] == ["returned", "joins"]
    attempt.is_leaving = True
    attempt.errors[0] = ValueError("no")
    assert [each.state for each in attempt.ranks()] == ["failed", "leaves"]
    assert [each.state for each in Attempt(1, placed(["a"]), ["x"], [0]).ranks()] == ["starts"]


def test_one_line_for_a_log() -> None:
    attempt = running()
    assert line("a run", view(Attempt(), state="SCHEDULING"), [], 3) == "a run: scheduling, 3 s"
    attempt.ledger.report(0, Reported(0, b""))
    shown = line("a run", view(attempt, metrics=[{"loss": 1}]), [3.0, 1.5], 30)
    assert shown == "a run: running, attempt 2, 30 s; 2 ranks, 0 to 1 reports, 4.5 per s; rank 0: loss 1"


def test_rates_start_anew_with_an_attempt() -> None:
    rates, attempt = Rates(), running()
    assert rates.of(view(attempt), 10.0) == [0.0, 0.0]
    for number in range(4):
        attempt.ledger.report(0, Reported(number, b""))
    assert rates.of(view(attempt), 12.0) == [2.0, 0.0]
    again = running()
    again.number = 3
    assert rates.of(view(again), 13.0) == [0.0, 0.0]


def test_metrics_that_are_no_numbers_are_left_out() -> None:
    assert (
        brief({"a": True, "b": "x", "c": 12345.678, "d": float("nan"), "e": 0.0, "f": 1})
        == "c 12346, d nan, e 0"
    )
