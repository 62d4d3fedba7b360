"""What is launched for groups: they come whole, or not at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.demand import Gang, Shape
from autoscaler.plan import plan
from autoscaler.provider import NodeType
from autoscaler.status import demand_notes, group_notes
from tests.autoscaler.build import (
    BIG,
    GPU,
    SMALL,
    config,
    gang,
    launched,
    running,
    shape,
    snapshot,
)

ALL = config(SMALL, BIG, GPU, upscaling_speed=100.0)


@pytest.mark.parametrize(
    ("strategy", "bundles", "expected"),
    [
        ("STRICT_PACK", [shape(CPU=2)] * 4, {"big": 1}),
        ("PACK", [shape(CPU=1)] * 2, {"small": 1}),
        ("SPREAD", [shape(CPU=1)] * 2, {"small": 1}),
        ("STRICT_SPREAD", [shape(CPU=1)] * 3, {"small": 3}),
        ("STRICT_SPREAD", [shape(CPU=8)] * 2, {"big": 2}),
        ("PACK", [shape(GPU=1), shape(GPU=1), shape(CPU=1)], {"gpu": 1}),
        ("PACK", [shape(CPU=8), shape(GPU=2, CPU=8)], {"gpu": 1, "big": 1}),
        ("SPREAD", [shape(GPU=1), *[shape(CPU=4)] * 9], {"gpu": 1, "big": 4}),
        ("STRICT_SPREAD", [shape(GPU=1), shape(CPU=1), shape(CPU=8)], {"gpu": 1, "small": 1, "big": 1}),
    ],
)
def test_machines_for_a_group(strategy: str, bundles: list[Shape], expected: dict[str, int]) -> None:
    assert launched(plan(snapshot(ALL, gangs=[gang(strategy, *bundles)]))) == expected


def test_a_group_on_free_nodes() -> None:
    pairs = [running(f"n{i}") for i in range(3)]
    assert launched(plan(snapshot(ALL, *pairs, gangs=[gang("STRICT_SPREAD", *[shape(CPU=1)] * 3)]))) == {}


def test_only_what_is_missing_is_launched() -> None:
    pairs = [running(f"n{i}") for i in range(2)]
    assert launched(plan(snapshot(ALL, *pairs, gangs=[gang("STRICT_SPREAD", *[shape(CPU=1)] * 3)]))) == {
        "small": 1
    }


def test_a_lost_bundle_alone_is_placed_again() -> None:
    pair = running("n0", free={"CPU": 1})
    one = gang("STRICT_SPREAD", shape(CPU=1), shape(CPU=1), placed=(b"n0", b""))
    assert launched(plan(snapshot(ALL, pair, gangs=[one]))) == {"small": 1}


def test_a_group_comes_whole_or_not_at_all() -> None:
    settings = config(replace(SMALL, max_workers=2), upscaling_speed=100.0)
    result = plan(
        snapshot(settings, running("a", free={}), gangs=[gang("STRICT_SPREAD", *[shape(CPU=1)] * 2)])
    )
    assert launched(result) == {}
    assert "max_workers 2" in result.waiting[0].why


def test_types_are_mixed_when_one_alone_does_not_do() -> None:
    a = NodeType("a", {"x": 1.0}, max_workers=1)
    b = NodeType("b", {"y": 1.0}, max_workers=1)
    assert launched(plan(snapshot(config(a, b), gangs=[gang("PACK", shape(x=1), shape(y=1))]))) == {
        "a": 1,
        "b": 1,
    }


def test_what_drivers_are_told() -> None:
    groups = [gang("STRICT_PACK", shape(CPU=99))]
    result = plan(
        snapshot(
            config(SMALL),
            shapes=[(shape(CPU=1), 1), (shape(CPU=98), 2)],
            gangs=groups,
            held={"small": "rests"},
        )
    )
    assert {demand for demand, _ in demand_notes(result)} == {"{CPU: 98}", "{CPU: 1}"}
    assert ("{CPU: 1}", "'small': rests") in demand_notes(result)
    assert [group for group, _ in group_notes(result)] == [groups[0].id]


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (
            gang("STRICT_PACK", *[shape(CPU=5)] * 2),
            "together on one node: the nearest node type is 'big': CPU 10",
        ),
        (gang("PACK", shape(CPU=1), shape(CPU=99)), "bundle {CPU: 99}: the nearest node type is 'big'"),
        (gang("STRICT_SPREAD", *[shape(GPU=1)] * 11), "all of them do not within the limits"),
        (gang("NO_SUCH", shape(CPU=1)), "all of them do not"),
    ],
)
def test_infeasible_groups(one: Gang, words: str) -> None:
    result = plan(snapshot(ALL, gangs=[one, gang("PACK", shape(CPU=1), id=2)]))
    assert words in result.infeasible[0].why
    assert launched(result) == {"small": 1}


def test_groups_before_shapes() -> None:
    settings = config(replace(SMALL, max_workers=1))
    result = plan(snapshot(settings, gangs=[gang("PACK", shape(CPU=2))], shapes=[(shape(CPU=2), 1)]))
    assert launched(result) == {"small": 1}
    assert [note.demand for note in result.waiting] == ["{CPU: 2}"]


def test_what_a_group_leaves_serves_shapes() -> None:
    result = plan(
        snapshot(ALL, gangs=[gang("STRICT_PACK", shape(CPU=3), shape(CPU=3))], shapes=[(shape(CPU=1), 2)])
    )
    assert launched(result) == {"big": 1}


def test_many_equal_hopeless_groups_are_all_told() -> None:
    many = [gang("PACK", shape(CPU=99), id=n) for n in range(50)]
    assert len(plan(snapshot(ALL, gangs=many)).infeasible) == 50


def test_a_group_within_one_domain() -> None:
    a, b = (replace(BIG, name=name, labels={"rack": name}, max_workers=2) for name in "ab")
    busy = running("x", a, free={"CPU": 8})
    one = Gang(b"g" * 18, "STRICT_SPREAD", (shape(CPU=8),) * 3, (), "rack")
    assert plan(snapshot(config(a, b), busy, gangs=[one])).infeasible
    two = replace(one, bundles=(shape(CPU=8),) * 2)
    assert launched(plan(snapshot(config(a, b), busy, gangs=[two]))) == {"a": 1}


def test_a_group_with_a_selector() -> None:
    tagged = replace(BIG, name="tagged", labels={"tier": "fast"})
    one = gang("PACK", shape({"tier": "fast"}, CPU=1))
    assert launched(plan(snapshot(config(SMALL, tagged), gangs=[one]))) == {"tagged": 1}
