from __future__ import annotations

from typing import Any

import pytest

from runtime.rllib.utils.schedules import (
    ConstantSchedule,
    ExponentialSchedule,
    LinearSchedule,
    PiecewiseSchedule,
    PolynomialSchedule,
    Scheduler,
)


def test_values_between_two_pairs_are_on_a_line_and_the_last_one_stays() -> None:
    scheduler = Scheduler([(0, 1.0), (100, 0.5), (200, 0.0)])
    assert scheduler.use_schedule
    assert scheduler.get_current_value() == 1.0
    assert [scheduler.update(t) for t in (0, 50, 100, 150, 200, 10_000)] == pytest.approx(
        [1, 0.75, 0.5, 0.25, 0, 0]
    )
    assert scheduler.get_current_value() == 0.0


def test_a_number_does_not_change() -> None:
    scheduler = Scheduler(0.3)
    assert not scheduler.use_schedule
    assert scheduler.update(1000) == scheduler.get_current_value() == 0.3


@pytest.mark.parametrize(
    "setting", [[(0, 1.0)], [(5, 1.0), (10, 0.5)], [(0, 1.0), (10, 1), (5, 1)], ["ab", "cd"], [0, 1]]
)
def test_a_setting_that_is_no_schedule_is_refused(setting: Any) -> None:
    with pytest.raises(ValueError, match="`lr`"):
        Scheduler.validate(fixed_value_or_schedule=setting, setting_name="lr", description="learning rate")


@pytest.mark.parametrize("setting", [None, 0.1, 1, [[0, 0.1], [10, 0.2]], ((0, 1), (5, 0))])
def test_numbers_and_schedules_are_accepted(setting: Any) -> None:
    Scheduler.validate(fixed_value_or_schedule=setting, setting_name="lr", description="learning rate")


def test_functions_of_time() -> None:
    assert ConstantSchedule(2.0).value(7) == 2.0
    linear = LinearSchedule(10, 0.0, initial_p=1.0)
    assert [linear(t) for t in (0, 5, 10, 20)] == pytest.approx([1, 0.5, 0, 0])
    assert PolynomialSchedule(10, 0.0, power=2.0).value(5) == pytest.approx(0.25)
    assert ExponentialSchedule(10, initial_p=2.0, decay_rate=0.1).value(20) == pytest.approx(0.02)
    stepped = PiecewiseSchedule(
        [(0, 1.0), (10, 2.0)], interpolation=lambda left, right, part: left, outside_value=9.0
    )
    assert [stepped.value(t) for t in (0, 9, 10)] == [1.0, 1.0, 9.0]


def test_time_steps_must_ascend() -> None:
    with pytest.raises(ValueError, match="ascend"):
        PiecewiseSchedule([(10, 1.0), (0, 2.0)])
