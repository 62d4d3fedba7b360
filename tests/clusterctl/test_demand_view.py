"""The demand part of `status`."""

from __future__ import annotations

from typing import Any

from clusterctl.demand_view import demand_lines
from clusterctl.head.views import cluster_status
from runtime._wire.messages.base import Demand, ResourceRequest, SchedulingStrategy
from runtime._wire.messages.control import ClusterState, PendingGroup, Requester

U = 10_000
JOB = b"\x01\0\0\0"


def shown(scaling: dict[str, Any] | None = None, **changes: Any) -> str:
    """What is shown of a picture at second 100, and of the autoscaler's report."""
    state = ClusterState(**{"version": 1, "now_s": 100.0, "nodes": [], **_NOTHING, **changes})
    report = {**cluster_status("c", state, [], {}), "autoscaler": scaling}
    return "\n".join(demand_lines(report))


_NOTHING: dict[str, Any] = {"demands": [], "groups": [], "requested": []}


def waiting(cpus: int, count: int, infeasible: bool = False, strategy: str = "DEFAULT") -> Demand:
    request = ResourceRequest({"CPU": cpus * U}, SchedulingStrategy(strategy, b"n" * 28))
    return Demand(request, count, infeasible)


def note(demand: str, why: str, infeasible: bool = False, count: int = 1000) -> dict[str, Any]:
    return {"demand": demand, "count": count, "why": why, "infeasible": infeasible}


def test_nothing_waits() -> None:
    assert shown() == "\ndemand\n  none"


def test_each_shape_has_its_count_and_what_it_waits_for() -> None:
    text = shown(
        {
            "types": [{"pending": 1}],
            "waiting": [
                note("{CPU: 1}", "the cluster's max_workers 3 is reached"),
                note("{CPU: 9}", "no node type is that large", infeasible=True),
            ],
        },
        demands=[waiting(1, 200), waiting(9, 3), waiting(2, 4), waiting(3, 1, strategy="NODE_AFFINITY")],
    )
    assert text.splitlines()[2:] == [
        "  3 x {CPU: 9}: infeasible: no node type is that large",
        "  200 x {CPU: 1}: waits: the cluster's max_workers 3 is reached",
        "  4 x {CPU: 2}: machines are on their way",
        "  1 x {CPU: 3}: waits for its node",
    ]


def test_without_an_autoscaler_the_nodes_of_today_decide() -> None:
    text = shown(demands=[waiting(1, 2), waiting(9, 1, infeasible=True)])
    assert "1 x {CPU: 9}: no node of today can hold one" in text
    assert "2 x {CPU: 1}: waits for room" in text


def test_equal_groups_are_counted() -> None:
    bundles = [{"CPU": U}, {"CPU": U}]
    groups = [PendingGroup(bytes([n]), "SPREAD", bundles, [b"", b""]) for n in range(30)]
    groups.append(PendingGroup(b"x", "SPREAD", bundles, [b"n", b""]))
    text = shown(
        {"types": [], "waiting": [note("placement group SPREAD [2 x {CPU: 1}]", "no capacity")]},
        groups=groups,
    )
    wanted = "  31 x placement group SPREAD [2 x {CPU: 1}] (1 of them in part placed): waits: no capacity"
    assert wanted in text.splitlines()


def test_parts_of_a_demand_may_wait_for_different_things() -> None:
    text = shown(
        {
            "types": [{"pending": 5}],
            "waiting": [note("{CPU: 1}", "the pace", count=100), note("{CPU: 1}", "max_workers", count=60)],
        },
        demands=[waiting(1, 200)],
    )
    wanted = "100 wait: the pace; 60 wait: max_workers; for the others, machines are on their way"
    assert text.endswith(f"  200 x {{CPU: 1}}: {wanted}")


def test_requests_name_owner_time_left_and_whether_they_are_met() -> None:
    text = shown(
        {
            "types": [],
            "waiting": [],
            "requested": [
                {"owner": JOB.hex(), "state": "met", "why": ""},
                {"owner": "nightly", "state": "waits", "why": "no machine to be had"},
                {"owner": "mine", "state": "coming", "why": ""},
            ],
        },
        requested=[{"CPU": U}, {"CPU": 2 * U}, {"GPU": U}, {"CPU": U}],
        requested_selectors=[{}, {"zone": "a"}, {}, {}],
        requested_counts=[50_000, 2, 1, 1],
        requesters=[
            Requester(JOB.hex(), 1, 0.0, JOB),
            Requester("nightly", 2, 160.0),
            Requester("mine", 1, 0.0, JOB),
        ],
    )
    assert text.splitlines()[2:] == [
        "  requested by 'nightly' (1 min 0 s left): 2 x {CPU: 2} with labels {zone: a}, 1 x {GPU: 1}: "
        "waits: no machine to be had",
        "  requested by 'mine' of job 01000000: 1 x {CPU: 1}: machines are on their way",
        "  requested by job 01000000: 50000 x {CPU: 1}: met",
    ]


def test_the_minimum_is_demand_as_well() -> None:
    text = shown({"types": [], "waiting": [note("min_workers of 'w'", "the platform has none", count=2)]})
    assert "  2 x min_workers of 'w': the platform has none" in text


def test_a_thousand_shapes_are_not_a_thousand_lines() -> None:
    text = shown(demands=[waiting(cpus, 1) for cpus in range(1, 1001)])
    assert "... and 980 more like these" in text
    assert len(text.splitlines()) == 23
