"""Which workers are missing, and when waiting makes no sense."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from clusterctl.api_client import ApiClient
from clusterctl.launcher import wait
from clusterctl.launcher.wait import (
    JOINED,
    Watcher,
    await_workers,
    describe_failure,
    failures,
    instance_ids,
    is_hopeless,
    missing_workers,
    rows_of,
    unserved,
)
from clusterctl.spec.load import load_text

SPEC = load_text(
    "cluster_name: c\nprovider: {type: local}\nhead_node_type: head\n"
    "available_node_types:\n  head: {}\n  a: {min_workers: 2, max_workers: 3}\n"
    "  b: {min_workers: 1, max_workers: 1}\n"
)


def node(kind: str, state: str = "ALIVE", is_head: bool = False, name: str = "i") -> dict[str, Any]:
    return {"node_type": kind, "state": state, "is_head": is_head, "instance_id": name}


def failure(step: str = "", at_s: float = 5.0) -> dict[str, Any]:
    return {
        "instance_id": "i1",
        "node_type": "a",
        "at_s": at_s,
        "reason": "exit status 9: no disk",
        "step": step,
        "setup_log": "/logs/i1.log" if step else "",
    }


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([], {"a": 2, "b": 1}),
        ([node("head", is_head=True)], {"a": 2, "b": 1}),
        ([node("a"), node("a"), node("b")], {}),
        ([node("a"), node("a", "DEAD"), node("b", "DRAINING")], {"a": 1, "b": 1}),
        ([node("a")] * 5 + [node("b")], {}),
    ],
)
def test_missing_workers(nodes: list[dict[str, Any]], expected: dict[str, int]) -> None:
    assert missing_workers(SPEC, {"nodes": nodes}) == expected


def test_those_that_a_new_spec_does_away_with_do_not_count() -> None:
    status = {"nodes": [node("a", name="old"), node("a"), node("b")]}
    assert missing_workers(SPEC, status, {"old"}) == {"a": 1}


def test_only_failures_since_then_count() -> None:
    status = {"autoscaler": {"failures": [failure(at_s=1.0), failure(at_s=9.0)]}}
    assert [item["at_s"] for item in failures(status, 5.0)] == [9.0]
    assert failures({"autoscaler": None}, 0.0) == []


def test_failures_of_an_earlier_spec_do_not_count() -> None:
    before = {"autoscaler": {"instances": [{"id": "i1"}]}}
    after = {"autoscaler": {"failures": [failure("setup_commands[0]", at_s=9.0)]}}
    assert failures(after, 5.0, instance_ids(before)) == []
    assert instance_ids({"autoscaler": None}) == frozenset()


def test_a_failed_setup_is_hopeless_and_a_stock_out_is_not_yet() -> None:
    assert is_hopeless([failure("setup_commands[0]")])
    assert not is_hopeless([failure()])
    assert is_hopeless([failure()] * 3)
    assert not is_hopeless([])


def test_a_failure_names_node_step_and_log() -> None:
    text = describe_failure(failure("setup_commands[0]"))
    for part in ("i1", "a", "setup_commands[0]", "no disk", "/logs/i1.log"):
        assert part in text


def test_the_head_is_asked_for_as_many_nodes_as_shall_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    head, gone = node("head", is_head=True), node("a", "DEAD")
    answers = [[head], [head, gone, node("a", name="j")], [head, node("a"), node("a"), node("b")]]
    asked = []

    def request(method: str, path: str, query: dict[str, Any], patience_s: float) -> Any:
        asked.append(query.get("nodes"))
        return SimpleNamespace(json=lambda: {"nodes": answers[len(asked) - 1], "demands": []})

    monkeypatch.setattr(wait, "_PAUSE_S", 0.0)
    api = cast(ApiClient, SimpleNamespace(request=request, patience_s=1.0))
    quiet = cast(Watcher, SimpleNamespace(say=lambda text: None, nodes=lambda rows: None))
    assert await_workers(api, SPEC, 60.0, quiet) == 3
    assert asked == [None, 4, 4]


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


def test_why_machines_are_not_asked_for() -> None:
    waiting = [
        {"demand": "min_workers gpu", "count": 2, "why": "the budget allows no more", "infeasible": False},
        {"demand": "{CPU: 1}", "count": 1, "why": "x", "infeasible": False},
    ]
    assert unserved({"autoscaler": {"waiting": waiting}}) == ["gpu: the budget allows no more"]
