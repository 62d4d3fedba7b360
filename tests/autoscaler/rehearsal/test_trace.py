"""Traces are read strictly, and say what is wrong where."""

from __future__ import annotations

import json
from typing import Any

import pytest

from autoscaler.rehearsal.trace import Fault, Tasks, Trace, TraceError, parse


def test_a_trace_survives_its_json() -> None:
    trace = parse(
        json.dumps(
            {
                "name": "all of it",
                "until_s": 600,
                "tasks": [
                    {"at_s": 1, "count": 3, "resources": {"CPU": 0.5}, "duration_s": [1, 2]},
                    {
                        "duration_s": 5,
                        "selector": {"zone": "in(a,b)"},
                        "fallbacks": [{}],
                        "times": 3,
                        "every_s": 2,
                    },
                ],
                "actors": [{"count": 2, "resources": {"GPU": 1}}],
                "groups": [{"bundles": [{"CPU": 1}], "strategy": "STRICT_PACK", "duration_s": None}],
                "requests": [{"at_s": 3, "bundles": [{"CPU": 8}], "ttl_s": 60, "owner": "me"}],
                "faults": [{"at_s": 2, "until_s": 9, "kind": "stockout", "node_type": "w"}],
                "offers": {"w": [{"price": 0.5, "zone": "a", "market": "spot"}]},
                "seed": 7,
            }
        )
    )
    assert parse(trace.to_json()) == trace
    assert list(trace.tasks[1].moments()) == [0, 2, 4]
    assert trace.actors[0].duration_s is None


@pytest.mark.parametrize(
    ("trace", "says"),
    [
        ({"task": []}, "unknown key 'task'; did you mean 'tasks'?"),
        ({"tasks": [{"duration_s": 1}, {"at": 3}]}, "tasks[1]: unknown key 'at'; did you mean 'at_s'?"),
        ({"tasks": [{"at_s": 3}]}, "tasks[0]: Object missing required field `duration_s`"),
        ({"tasks": [{"duration_s": "long"}]}, "tasks[0].duration_s"),
        ({"tasks": [{"duration_s": [1, 2, 3]}]}, "tasks[0].duration_s"),
        ({"tasks": [{"duration_s": [2, 1]}]}, "tasks[0]: duration_s: the lower bound 2 is above the upper 1"),
        ({"tasks": [{"duration_s": [1, 2], "count": 0}]}, "tasks[0].count"),
        ({"tasks": [{"duration_s": 1, "times": 4}]}, "tasks[0]: `times` needs `every_s`"),
        ({"tasks": [{"duration_s": 1, "selector": {"zone": "in(a"}}]}, "closing parenthesis"),
        ({"groups": [{"bundles": [], "duration_s": 1}]}, "groups[0].bundles"),
        ({"groups": [{"bundles": [{"CPU": 0.000001}], "duration_s": 1}]}, "groups[0]: The precision"),
        ({"requests": [{"bundles": [{"CPU": 1}], "selectors": [{}, {}]}]}, "2 selectors for 1 bundles"),
        ({"faults": [{"kind": "locusts"}]}, "faults[0].kind"),
        ({"faults": [{"kind": "slow_boot"}]}, "faults[0]: slow_boot needs `seconds`"),
        ({"faults": [{"kind": "spot_loss", "until_s": 9}]}, "happens at one moment"),
        ({"faults": [{"kind": "quota", "at_s": 9, "until_s": 9}]}, "until_s 9 is not after at_s 9"),
        ({"offers": {"w": [{"prize": 1}]}}, "did you mean 'price'?"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(trace: dict[str, Any], says: str) -> None:
    with pytest.raises(TraceError) as raised:
        parse(json.dumps(trace))
    assert says in str(raised.value)


def test_what_is_no_json_is_said_so() -> None:
    with pytest.raises(TraceError, match="not JSON"):
        parse(b"{")


def test_traces_can_be_written_in_python() -> None:
    trace = Trace(tasks=[Tasks(duration_s=1.0)], faults=[Fault(kind="quota", count=2)])
    assert trace.tasks[0].resources == {"CPU": 1.0}
    assert parse(trace.to_json()) == trace
