"""What is seen while a cluster comes up, on a terminal and elsewhere."""

from __future__ import annotations

import io
import re

import pytest

from clusterctl.launcher.wait import JOINED, NodeRow
from clusterctl.progress import Board, Progress


def screen(written: str) -> list[str]:
    """What a terminal shows after these bytes: lines, "up n lines", "clear to the end"."""
    lines: list[str] = []
    for up, text in re.findall(r"\x1b\[(\d+)F\x1b\[J|([^\x1b]+)", written):
        if up:
            lines = lines[: len(lines) - int(up)]
        else:
            lines += text.splitlines()
    return lines


def test_elsewhere_every_change_is_a_line() -> None:
    stream = io.StringIO()
    with Progress(stream) as progress:
        progress.say("setting up the head")
        progress.nodes([NodeRow("w1", "cpu", "boots")])
        progress.nodes([NodeRow("w1", "cpu", "boots")])
        progress.nodes([NodeRow("w1", "cpu", JOINED)])
    assert stream.getvalue() == "setting up the head\n  w1 (cpu): boots\n  w1 (cpu): joined\n"


def test_on_a_terminal_the_table_is_redrawn_in_place_below_the_lines() -> None:
    stream = io.StringIO()
    with Progress(stream, live=True) as progress:
        progress.nodes([NodeRow("head", "head", "set up: start")])
        progress.say("waiting for 1 cpu")
        progress.nodes([NodeRow("head", "head", JOINED), NodeRow("w1", "cpu", "boots")])
        progress.say("another line")
    shown = screen(stream.getvalue())
    assert shown[:2] == ["waiting for 1 cpu", "another line"]
    assert shown[2].split() == ["node", "type", "does", "for"]
    assert [line.split()[:3] for line in shown[3:]] == [["w1", "cpu", "boots"], ["head", "head", "joined"]]


@pytest.mark.parametrize("live", [False, True])
def test_programs_are_told_of_every_change(live: bool) -> None:
    events: list[dict[str, object]] = []
    with Progress(io.StringIO(), live=live, on_event=events.append) as progress:
        progress.say("setting up the head")
        progress.nodes([NodeRow("w1", "cpu", "boots")])
        progress.nodes([NodeRow("w1", "cpu", "boots")])
        progress.nodes([NodeRow("w1", "cpu", JOINED)])
    assert [{key: event[key] for key in event if key != "at_s"} for event in events] == [
        {"event": "progress", "text": "setting up the head"},
        {"event": "node", "node": "w1", "node_type": "cpu", "doing": "boots"},
        {"event": "node", "node": "w1", "node_type": "cpu", "doing": "joined"},
    ]


def test_a_program_that_goes_away_is_told_no_more() -> None:
    told: list[dict[str, object]] = []

    def breaks(event: dict[str, object]) -> None:
        told.append(event)
        raise BrokenPipeError

    stream = io.StringIO()
    with Progress(stream, on_event=breaks) as progress:
        progress.say("one")
        progress.say("two")
    assert stream.getvalue() == "one\ntwo\n"
    assert len(told) == 1


def test_a_table_that_does_not_fit_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINES", "10")
    monkeypatch.setenv("COLUMNS", "30")
    stream = io.StringIO()
    with Progress(stream, live=True) as progress:
        progress.nodes([NodeRow(f"worker-{i}", "cpu", "set up: a step with a long name") for i in range(20)])
    shown = screen(stream.getvalue())
    assert len(shown) == 6
    assert shown[-1] == "  and 16 more"
    assert max(map(len, shown)) < 30


def test_only_changes_are_told() -> None:
    board = Board()
    boots = NodeRow("w1", "cpu", "boots")
    assert board.update([boots], 1.0) == [boots]
    assert board.update([boots], 2.0) == []
    joined = NodeRow("w1", "cpu", JOINED)
    assert board.update([joined], 4.0) == [joined]


def test_time_counts_from_the_change_and_those_that_have_joined_come_last() -> None:
    board = Board()
    board.update([NodeRow("w1", "cpu", JOINED), NodeRow("w2", "cpu", "boots")], 10.0)
    board.update([NodeRow("w2", "cpu", "boots")], 15.0)
    assert [(row.name, since) for row, since in board.rows(30.0)] == [("w2", 20.0), ("w1", 20.0)]


def test_what_each_node_spent_its_time_with() -> None:
    board = Board()
    for now, doing in ((0.0, "boots"), (3.0, "set up: a"), (5.0, "boots"), (6.0, JOINED)):
        board.update([NodeRow("w1", "cpu", doing)], now)
    board.update([NodeRow("w2", "cpu", "boots")], 6.0)
    assert board.spent(10.0) == {"w1": {"boots": 4.0, "set up: a": 2.0}, "w2": {"boots": 4.0}}
