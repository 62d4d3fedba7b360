"""What is bought for several shapes at once, and that the next plan finds it enough."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.demand import Shape
from autoscaler.instances import Instance, InstanceState
from autoscaler.plan import Plan, plan
from autoscaler.provider import NodeType, Offer
from tests.autoscaler.build import config, instance, shape, snapshot

LEAN = NodeType("lean", {"CPU": 16, "memory": 32e9}, max_workers=1000)
RICH = NodeType("rich", {"CPU": 16, "memory": 128e9}, max_workers=1000)
GPUS = NodeType("gpus", {"CPU": 16, "GPU": 4, "memory": 64e9}, max_workers=1000)
KINDS = (LEAN, RICH, GPUS)
OFFERS = {"lean": [Offer(price=0.68)], "rich": [Offer(price=1.0)], "gpus": [Offer(price=5.0)]}
SPEED = config(*KINDS, max_workers=3000, upscaling_speed=1000.0)

Work = list[tuple[Shape, int]]


def bought(work: Work, *coming: Instance) -> Plan:
    return plan(snapshot(SPEED, shapes=work, instances=coming, offers=OFFERS))


def launched(made: Plan) -> dict[str, int]:
    counts: dict[str, int] = {}
    for launch in made.launches:
        counts[launch.node_type] = counts.get(launch.node_type, 0) + launch.count
    return counts


def on_their_way(made: Plan) -> list[Instance]:
    return [
        instance(f"{name}-{number}", name, InstanceState.SETTING_UP, offer=OFFERS[name][0])
        for name, count in launched(made).items()
        for number in range(count)
    ]


def test_what_is_left_beside_dear_work_is_filled_with_cheap_work() -> None:
    # Ten of the tasks with much memory leave a rich machine room for three of the others.
    work = [(shape(CPU=1, memory=12e9), 60), (shape(CPU=2, memory=1e9), 120)]
    assert launched(bought(work)) == {"rich": 6, "lean": 13}


def test_a_gpu_machine_is_filled_up_before_others_are_bought() -> None:
    work = [(shape(CPU=2, GPU=1), 8), (shape(CPU=1), 16)]
    assert launched(bought(work)) == {"gpus": 2}


shapes = st.builds(
    shape,
    CPU=st.integers(1, 8).map(float),
    GPU=st.sampled_from((0.0, 0.0, 0.0, 0.5, 1.0, 3.0)),
    memory=st.integers(0, 30).map(lambda gb: gb * 1e9),
)
works = st.dictionaries(shapes, st.integers(1, 60), min_size=1, max_size=5).map(
    lambda found: [*found.items()]
)


@settings(max_examples=100, deadline=None)
@given(works)
def test_the_next_plan_buys_nothing_again(work: Work) -> None:
    made = bought(work)
    assert not made.waiting
    assert not made.infeasible
    again = bought(work, *on_their_way(made))
    assert launched(again) == {}
    assert not again.waiting


@pytest.mark.parametrize("order", [1, -1])
def test_the_order_of_the_demand_does_not_matter(order: int) -> None:
    work = [(shape(CPU=1, memory=12e9), 60), (shape(CPU=2, memory=1e9), 120), (shape(CPU=2, GPU=1), 3)]
    assert launched(bought(work[::order])) == launched(bought(work))
