"""What holds of every plan, for demands of a few types made at random."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.demand import Gang, Shape
from autoscaler.instances import InstanceState
from autoscaler.plan import DEMAND, plan
from autoscaler.provider import NodeType
from runtime._core.placement import Fit, NodeView, Request, choose_node
from runtime._core.resources import to_units
from tests.autoscaler.build import (
    config,
    gang,
    instance,
    launched,
    running,
    shape,
    snapshot,
)

S = InstanceState


def kind_of(cpu: int, gpu: int, most: int, least: int) -> NodeType:
    resources = {"CPU": float(cpu)} | ({"GPU": float(gpu)} if gpu else {})
    return NodeType("", resources, min_workers=min(least, most), max_workers=most)


KINDS = st.lists(
    st.builds(kind_of, st.integers(1, 16), st.integers(0, 4), st.integers(0, 8), st.integers(0, 2)),
    min_size=1,
    max_size=4,
).map(lambda kinds: tuple(replace(kind, name=f"t{i}") for i, kind in enumerate(kinds)))
SHAPES = st.lists(
    st.tuples(
        st.builds(lambda c, g: shape(CPU=c, GPU=g), st.integers(1, 20), st.integers(0, 3)),
        st.integers(1, 60),
    ),
    max_size=6,
    unique_by=lambda entry: entry[0],
)
GANGS = st.lists(
    st.builds(
        lambda s, c, n: (s, shape(CPU=c), n),
        st.sampled_from(["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"]),
        st.integers(1, 6),
        st.integers(1, 4),
    ),
    max_size=3,
).map(lambda found: [gang(s, *[one] * n, id=i) for i, (s, one, n) in enumerate(found)])


@settings(max_examples=200, deadline=None)
@given(KINDS, SHAPES, GANGS, st.integers(0, 12), st.integers(0, 6))
def test_limits_hold_and_what_is_launched_is_of_use(
    kinds: tuple[NodeType, ...], shapes: list[tuple[Shape, int]], gangs: list[Gang], most: int, there: int
) -> None:
    setup = config(*kinds, max_workers=most, upscaling_speed=1000.0)
    pairs = [running(f"n{i}", kinds[0], free={}) for i in range(min(there, kinds[0].max_workers, most))]
    picture = snapshot(setup, *pairs, shapes=shapes, gangs=gangs)
    result = plan(picture)
    counts = launched(result)
    for kind in kinds:
        mine = len(pairs) if kind is kinds[0] else 0
        assert counts.get(kind.name, 0) + mine <= max(kind.max_workers, mine)
    assert sum(counts.values()) + len(pairs) <= max(most, len(pairs))
    by_name = {kind.name: kind for kind in kinds}
    wanted = [one for one, _ in shapes]
    for launch in result.launches:
        if launch.reason == DEMAND:
            total = to_units(by_name[launch.node_type].resources)
            view = NodeView(b"new", total, dict(total))
            verdicts = [
                choose_node(Request(dict(one.resources)), [view], rng=random.Random(0)).fit for one in wanted
            ]
            assert Fit.AVAILABLE in verdicts
    assert plan(picture) == result, "the same picture gives the same plan"


@settings(max_examples=100, deadline=None)
@given(KINDS, SHAPES, GANGS)
def test_planning_comes_to_rest(
    kinds: tuple[NodeType, ...], shapes: list[tuple[Shape, int]], gangs: list[Gang]
) -> None:
    """With everything launched and on its way the next plan launches nothing more."""
    setup = config(*kinds, upscaling_speed=1000.0)
    coming = []
    for round_number in range(4):
        result = plan(snapshot(setup, shapes=shapes, gangs=gangs, instances=coming))
        if not result.launches:
            return
        for launch in result.launches:
            coming += [
                instance(
                    f"{round_number}-{launch.node_type}-{launch.reason}-{i}", launch.node_type, S.REQUESTED
                )
                for i in range(launch.count)
            ]
    pytest.fail(f"still launching: {result.launches}")
