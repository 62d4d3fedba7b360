"""How many workers a run has."""

from __future__ import annotations

from runtime._controllers.policies import Plan, Standing
from runtime.train._core.scaling_policy import Gangs, Size


def standing(size: int, deaths: int = 0, draining: int = 0) -> Standing:
    return Standing([], [(number, 0.0) for number in range(size)], [], draining, 0, 0, ["gone"] * deaths)


def test_a_gang_is_added_while_all_live() -> None:
    gangs = Gangs(2)
    assert gangs.decide(standing(0), 0.0) == Plan(create=2)
    gangs.add(3)
    assert gangs.decide(standing(2), 0.0) == Plan(create=3)
    assert gangs.decide(standing(5), 0.0) == Plan()
    gangs.add(1)
    assert gangs.decide(standing(4, deaths=1), 0.0) == Plan(end=[0, 1, 2, 3])
    assert gangs.decide(standing(0, draining=4), 0.0) == Plan()
    assert gangs.decide(standing(0), 0.0) == Plan(create=2)


def test_a_fixed_size() -> None:
    size = Size(3, 3)
    assert not size.is_elastic
    assert [size.is_enough(ready, 3, True) for ready in (2, 3)] == [False, True]


def test_a_size_between_two() -> None:
    size = Size(2, 4)
    assert [size.first(room) for room in (0, 3, 9)] == [2, 3, 4]
    assert [size.more(3, room) for room in (0, 1, 9)] == [0, 1, 1]
    assert size.is_enough(3, 3, False)
    assert not size.is_enough(3, 4, False)
    assert size.is_enough(3, 4, True)
    assert not size.is_enough(1, 4, True)
