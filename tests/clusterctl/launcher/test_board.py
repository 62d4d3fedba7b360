"""Where nodes stand while a cluster comes up."""

from __future__ import annotations

from typing import Any

from clusterctl.launcher.board import JOINED, Board, NodeRow, rows_of, unserved


def instance(id: str, state: str, step: str = "") -> dict[str, Any]:
    return {"id": id, "node_type": "cpu", "state": state, "step": step}


def test_rows_say_what_each_worker_does_and_at_which_step() -> None:
    report = {
        "instances": [
            instance("w3", "SETTING_UP", "setup_commands[0]"),
            instance("w1", "REQUESTED"),
            instance("w2", "ALLOCATED"),
            instance("w4", "SETTING_UP"),
            instance("w5", "RUNNING"),
        ]
    }
    assert [(row.name, row.doing) for row in rows_of({"autoscaler": report})] == [
        ("w1", "asked for"),
        ("w2", "boots"),
        ("w3", "set up: setup_commands[0]"),
        ("w4", "joins"),
        ("w5", JOINED),
    ]
    assert rows_of({"autoscaler": None}) == []


def test_workers_that_have_ended_are_told_of_when_they_were_seen() -> None:
    ended = [
        {**instance("w1", "TERMINATED"), "failure": "no disk"},
        {**instance("w2", "TERMINATED"), "failure": ""},
    ]
    status = {"autoscaler": {"instances": [], "ended": ended}}
    assert rows_of(status) == []
    assert [row.doing for row in rows_of(status, {"w1", "w2"})] == ["failed", "has ended"]


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


def test_why_machines_are_not_asked_for() -> None:
    waiting = [
        {"demand": "min_workers gpu", "count": 2, "why": "the budget allows no more", "infeasible": False},
        {"demand": "{CPU: 1}", "count": 1, "why": "x", "infeasible": False},
    ]
    assert unserved({"autoscaler": {"waiting": waiting}}) == ["gpu: the budget allows no more"]
