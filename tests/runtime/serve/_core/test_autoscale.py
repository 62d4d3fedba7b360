"""Autoscaling, replayed: what is decided when, for a trace of loads."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.serve._core.autoscale import STALE_S, History, Scaler
from runtime.serve.config import AggregationFunction, AutoscalingConfig, AutoscalingContext

BOUNDS = {"min_replicas": 1, "max_replicas": 10, "target_ongoing_requests": 2, "look_back_period_s": 11.0}


def replay(
    config: AutoscalingConfig, trace: dict[float, int], until_s: float, wanted: int = 1, policy: Any = None
) -> list[tuple[float, int]]:
    """The decisions that change something, with their times, if replicas are there at once.

    Args:
        trace: from when on so many requests run.
    """
    scaler = Scaler("app", "deployment", config, policy, 0.0)
    changes: list[tuple[float, int]] = []
    waits = dict(trace)
    now = 0.0
    while now <= until_s:
        for at_s in sorted(waits):
            if at_s <= now:
                scaler.history.ran("r0", waits.pop(at_s), {}, now)
        decision = scaler.decide(now, wanted, [f"r{n}" for n in range(wanted)])
        assert not decision.error, decision.error
        if decision.wanted != wanted:
            wanted = decision.wanted
            changes.append((round(now, 3), wanted))
        following = [at_s for at_s in waits if at_s > now]
        if decision.again_s is not None:
            following.append(now + decision.again_s)
        if not following:
            break
        now = min(following)
    return changes


def test_more_replicas_after_the_delay_and_fewer_after_theirs() -> None:
    config = AutoscalingConfig(
        **{**BOUNDS, "look_back_period_s": 0.2}, upscale_delay_s=3, downscale_delay_s=10
    )
    changes = replay(config, {5: 8, 20: 1}, 60)
    (up_s, up), *_, (down_s, down) = changes
    assert up == 4
    assert 8.0 <= up_s <= 8.5
    assert down == 1
    assert 30.0 <= down_s <= 30.5


def test_a_short_peak_changes_nothing() -> None:
    config = AutoscalingConfig(**{**BOUNDS, "look_back_period_s": 0.2}, upscale_delay_s=3)
    assert replay(config, {5: 8, 7: 0}, 60) == []


def test_nothing_is_looked_at_while_the_load_stays() -> None:
    scaler = Scaler("app", "deployment", AutoscalingConfig(**BOUNDS), None, 0.0)
    scaler.history.ran("r0", 2, {}, 0.0)
    assert scaler.decide(1.0, 1, ["r0"]).again_s is not None  # the average still moves
    assert scaler.decide(12.0, 1, ["r0"]).again_s is None


def test_bounds_and_factors() -> None:
    quick = {**BOUNDS, "look_back_period_s": 0.1, "upscale_delay_s": 0, "downscale_delay_s": 0}
    assert replay(AutoscalingConfig(**quick), {0: 100}, 5)[-1][1] == 10
    assert replay(AutoscalingConfig(**quick, upscaling_factor=0.5), {0: 18}, 0)[0][1] == 5
    slow = AutoscalingConfig(**quick, downscaling_factor=0.1)
    steps = [wanted for _, wanted in replay(slow, {0: 2}, 30, wanted=3)]
    assert steps == [2, 1]


def test_from_zero_at_once_and_to_zero_after_a_delay_of_its_own() -> None:
    config = AutoscalingConfig(
        **{**BOUNDS, "min_replicas": 0, "look_back_period_s": 0.1},
        upscale_delay_s=30,
        downscale_delay_s=1,
        downscale_to_zero_delay_s=20,
    )
    changes = replay(config, {2: 3, 10: 0}, 60, wanted=0)
    assert changes[0] == (2.0, 1)
    assert changes[-1][1] == 0
    assert 30.0 <= changes[-1][0] <= 30.5


def test_to_zero_goes_over_one() -> None:
    config = AutoscalingConfig(
        **{**BOUNDS, "min_replicas": 0, "look_back_period_s": 0.1},
        downscale_delay_s=1,
        downscale_to_zero_delay_s=5,
    )
    assert [wanted for _, wanted in replay(config, {0: 0}, 60, wanted=4)] == [1, 0]


def test_how_a_window_is_measured() -> None:
    history = History(0.0, 10.0)
    history.ran("a", 4, {}, 2.0)
    history.waited("caller", 6, 6.0)

    def measured(how: AggregationFunction, of: str = "total") -> float:
        return history.measured(10.0, 8.0, how, lambda step: getattr(step, of))

    assert measured(AggregationFunction.MEAN) == (4 * 4 + 4 * 10) / 8
    assert measured(AggregationFunction.MAX) == 10
    assert measured(AggregationFunction.MIN) == 4
    assert measured(AggregationFunction.MEAN, "queued") == 3
    history.forget("a", 10.0)
    assert history.last.total == 6


def test_a_caller_that_tells_nothing_more_counts_for_a_while_only() -> None:
    history = History(0.0, 10.0)
    history.waited("caller", 6, 0.0)
    history.expire(STALE_S - 1)
    assert history.last.queued == 6
    history.expire(STALE_S)
    assert history.last.queued == 0


def test_a_policy_of_ones_own_sees_the_deployment_and_keeps_its_state() -> None:
    seen: list[AutoscalingContext] = []

    def policy(context: AutoscalingContext) -> tuple[int, dict[str, Any]]:
        seen.append(context)
        return 3, {"calls": context.policy_state.get("calls", 0) + 1}

    config = AutoscalingConfig(**BOUNDS, upscale_delay_s=0)
    scaler = Scaler("app", "deployment", config, policy, 0.0, wall_offset_s=1e9)
    scaler.history.ran("r0", 4, {"memory": 5.0, "name": "text"}, 0.0)
    assert scaler.decide(10.0, 1, ["r0"]).wanted == 3
    assert scaler.decide(11.0, 3, ["r0"]).again_s == 1.0
    first, second = seen
    assert (first.app_name, first.deployment_name, first.running_replicas) == ("app", "deployment", ["r0"])
    assert (first.total_num_requests, first.total_queued_requests, first.target_num_replicas) == (4.0, 0.0, 1)
    assert first.aggregated_metrics == {"memory": {"r0": 5.0}}
    assert first.raw_metrics == {"memory": {"r0": [(1e9, 5.0)]}}
    assert (second.policy_state, second.last_scale_up_time) == ({"calls": 1}, 1e9 + 10)
    assert (first.current_time, first.last_scale_up_time) == (1e9 + 10, None)  # seconds since the epoch


def test_a_policy_that_fails_changes_nothing_and_says_why() -> None:
    def policy(_: AutoscalingContext) -> Any:
        raise KeyError("memory")

    decision = Scaler("app", "deployment", AutoscalingConfig(**BOUNDS), policy, 0.0).decide(
        1.0, 2, ["r0", "r1"]
    )
    assert decision.wanted == 2
    assert "KeyError('memory')" in decision.error


@pytest.mark.parametrize("load", [0, 1, 2, 5, 19, 20, 200])
def test_where_a_steady_load_ends(load: int) -> None:
    config = AutoscalingConfig(
        **{**BOUNDS, "look_back_period_s": 0.5}, upscale_delay_s=1, downscale_delay_s=1
    )
    changes = replay(config, {0: load}, 100, wanted=2)
    expected = min(10, max(1, -(-load // 2)))
    assert (changes[-1][1] if changes else 2) == expected
