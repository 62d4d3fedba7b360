"""How many replicas a deployment should have, from what is known of its load. Pure: the time is an argument."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from runtime.serve._core.capacity import FULL, Capacity, Direction
from runtime.serve._core.published import REPEAT_S
from runtime.serve.config import AggregationFunction, AutoscalingConfig, AutoscalingContext

STALE_S = 4 * REPEAT_S
"""How long the last report of a caller's queue counts: the caller may be gone."""
EPSILON_S = 1e-6
AGAIN_S = 0.1
POLICY_EVERY_S = 1.0
"""How often a custom policy is called: it may depend on more than the load."""

Policy = Callable[[AutoscalingContext], tuple[float, dict[str, Any]]]


class Step(msgspec.Struct, frozen=True):
    """From `at_s` on so many requests ran, and so many waited at callers."""

    at_s: float
    running: int
    queued: int

    @property
    def total(self) -> int:
        return self.running + self.queued


class History:
    """The load of one deployment over time, as steps between which it does not change."""

    def __init__(self, now: float, keep_s: float) -> None:
        self.keep_s = keep_s
        self._begun_s = now
        self._running: dict[str, int] = {}
        self._queued: dict[str, tuple[int, float]] = {}
        self._steps: deque[Step] = deque([Step(now, 0, 0)])
        self._metrics: dict[str, dict[str, deque[tuple[float, float]]]] = {}

    @property
    def last(self) -> Step:
        """The load now."""
        return self._steps[-1]

    def ran(self, replica: str, ongoing: int, metrics: Mapping[str, Any], now: float) -> None:
        """A replica has told its load."""
        self._running[replica] = ongoing
        for name, value in metrics.items():
            if isinstance(value, int | float):
                points = self._metrics.setdefault(name, {}).setdefault(replica, deque())
                points.append((now, float(value)))
                while points[0][0] < now - self.keep_s and len(points) > 1:
                    points.popleft()
        self._note(now)

    def waited(self, caller: str, queued: int, now: float) -> None:
        """A caller has told how many of its requests wait."""
        if queued:
            self._queued[caller] = (queued, now)
        else:
            self._queued.pop(caller, None)
        self._note(now)

    def forget(self, replica: str, now: float) -> None:
        """A replica is gone."""
        self._running.pop(replica, None)
        for series in self._metrics.values():
            series.pop(replica, None)
        self._note(now)

    def expire(self, now: float) -> None:
        """Drops what was told too long ago."""
        stale = [caller for caller, (_, told_s) in self._queued.items() if told_s + STALE_S <= now]
        for caller in stale:
            del self._queued[caller]
        if stale:
            self._note(now)

    @property
    def expires_s(self) -> float | None:
        """When `expire` has something to do next."""
        return min((told_s + STALE_S for _, told_s in self._queued.values()), default=None)

    def settled_at(self, look_back_s: float) -> float:
        """When the window holds nothing but the present load."""
        return self.last.at_s + look_back_s

    def measured(
        self, now: float, look_back_s: float, how: AggregationFunction, of: Callable[[Step], int]
    ) -> float:
        """The mean (weighted by time), maximum or minimum over the window that ends now."""
        begin = max(now - look_back_s, self._begun_s)
        parts: list[tuple[float, int]] = []
        until = now
        for step in reversed(self._steps):
            since = max(step.at_s, begin)
            parts.append((until - since, of(step)))
            until = since
            if step.at_s <= begin:
                break
        if how is AggregationFunction.MAX:
            return float(max(value for _, value in parts))
        if how is AggregationFunction.MIN:
            return float(min(value for _, value in parts))
        length = sum(seconds for seconds, _ in parts)
        if length <= 0:
            return float(of(self.last))
        return sum(seconds * value for seconds, value in parts) / length

    def raw(self, now: float, look_back_s: float) -> dict[str, dict[str, list[tuple[float, float]]]]:
        """The metrics of the user, by name and replica."""
        return {
            name: {
                replica: [point for point in points if point[0] >= now - look_back_s] or [points[-1]]
                for replica, points in series.items()
            }
            for name, series in self._metrics.items()
        }

    def _note(self, now: float) -> None:
        step = Step(now, sum(self._running.values()), sum(count for count, _ in self._queued.values()))
        if (step.running, step.queued) == (self.last.running, self.last.queued):
            return
        if self.last.at_s == now:
            self._steps.pop()
        self._steps.append(step)
        while len(self._steps) > 1 and self._steps[1].at_s < now - self.keep_s:
            self._steps.popleft()


class Decision(msgspec.Struct, frozen=True):
    """So many replicas are wanted. Look again after `again_s`, None: when the load changes."""

    wanted: int
    again_s: float | None
    error: str = ""


class Scaler:
    """Decides for one deployment.

    Args:
        policy: a custom one; None: by the number of requests.
        wall_offset_s: wall-clock time less that of `now`; a policy sees seconds since the epoch.
    """

    def __init__(
        self,
        app: str,
        deployment: str,
        config: AutoscalingConfig,
        policy: Policy | None,
        now: float,
        wall_offset_s: float = 0.0,
    ) -> None:
        self.config = config
        self.policy = policy
        self.capacity = FULL
        self.history = History(now, config.look_back_period_s)
        self.last_up_s: float | None = None
        self.last_down_s: float | None = None
        self._place = app, deployment
        self._wall_offset_s = wall_offset_s
        self._state: dict[str, Any] = {}
        self._direction = 0  # which way it should go since `_since_s`
        self._since_s = 0.0

    @property
    def first(self) -> int:
        """How many replicas a new deployment has."""
        initial = self.config.initial_replicas
        return self.capacity.of(self.config.min_replicas if initial is None else initial)

    @property
    def bounds(self) -> tuple[int, int]:
        """Least and most replicas. While the capacity grows, there are as many as a new deployment would have."""
        if self.capacity.direction is Direction.UP:
            return self.first, self.capacity.of(self.config.max_replicas)
        return self.capacity.of(self.config.min_replicas), self.capacity.of(self.config.max_replicas)

    def change(self, config: AutoscalingConfig, policy: Policy | None, capacity: Capacity) -> None:
        """Another configuration for the same deployment."""
        self.config, self.policy, self.capacity = config, policy, capacity
        self.history.keep_s = config.look_back_period_s

    def clamp(self, wanted: int) -> int:
        """Within the bounds."""
        low, high = self.bounds
        return max(low, min(high, wanted))

    def decide(self, now: float, wanted: int, running: Sequence[str]) -> Decision:
        """What is wanted now.

        Args:
            wanted: what was wanted so far.
            running: ids of the replicas that serve.
        """
        history, config = self.history, self.config
        history.expire(now)
        if not running and history.last.total > 0:
            # From zero replicas there is no average to wait for.
            self._direction = 0
            first = max(math.ceil(config.get_upscaling_factor()), wanted)
            return self._decided(now, wanted, self.clamp(first), None)
        try:
            desired = self._desired(now, wanted, running)
        except Exception as error:
            return Decision(wanted, POLICY_EVERY_S, f"its autoscaling policy failed: {error!r}")
        target = self.clamp(max(0, self._scaled(desired, len(running))))
        decided, due_s = self._delayed(now, wanted, target)
        return self._decided(now, wanted, decided, due_s)

    def _decided(self, now: float, before: int, wanted: int, due_s: float | None) -> Decision:
        if wanted > before:
            self.last_up_s = now
        elif wanted < before:
            self.last_down_s = now
        look_back_s = self.config.look_back_period_s
        times = [due_s] if due_s is not None else []
        if wanted != before:
            times.append(now + AGAIN_S)  # one decision may not go the whole way
        if self.policy is not None:
            times.append(now + POLICY_EVERY_S)
        expires_s = self.history.expires_s
        if expires_s is not None:
            times.append(expires_s)
        if now < self.history.settled_at(look_back_s):
            times.append(now + max(0.1, min(1.0, look_back_s / 20)))
        return Decision(wanted, max(0.01, min(times) - now) if times else None)

    def _desired(self, now: float, wanted: int, running: Sequence[str]) -> float:
        config, history = self.config, self.history
        look_back_s = config.look_back_period_s
        how = AggregationFunction(config.aggregation_function)
        total = history.measured(now, look_back_s, how, lambda step: step.total)
        if self.policy is None:
            return total / config.get_target_ongoing_requests()
        app, deployment = self._place
        low, high = self.bounds
        context = AutoscalingContext(
            deployment_id=self._place,
            deployment_name=deployment,
            app_name=app,
            current_num_replicas=len(running),
            target_num_replicas=wanted,
            running_replicas=list(running),
            total_num_requests=total,
            total_queued_requests=lambda: history.measured(now, look_back_s, how, lambda step: step.queued),
            aggregated_metrics=lambda: _aggregated(history.raw(now, look_back_s), how),
            raw_metrics=lambda: self._with_wall_times(history.raw(now, look_back_s)),
            capacity_adjusted_min_replicas=low,
            capacity_adjusted_max_replicas=high,
            policy_state=dict(self._state),
            last_scale_up_time=self._wall_s(self.last_up_s),
            last_scale_down_time=self._wall_s(self.last_down_s),
            current_time=self._wall_s(now),
            config=config,
        )
        desired, state = self.policy(context)
        self._state = dict(state or {})
        return desired

    def _wall_s(self, time_s: float | None) -> float | None:
        return None if time_s is None else time_s + self._wall_offset_s

    def _with_wall_times(
        self, raw: Mapping[str, Mapping[str, Iterable[tuple[float, float]]]]
    ) -> dict[str, dict[str, list[tuple[float, float]]]]:
        return {
            name: {
                replica: [(at_s + self._wall_offset_s, value) for at_s, value in points]
                for replica, points in series.items()
            }
            for name, series in raw.items()
        }

    def _scaled(self, desired: float, current: int) -> int:
        """With the factor. A step down that the factor would round away is one replica."""
        if not current:
            return math.ceil(desired)
        difference = desired - current
        config = self.config
        factor = config.get_upscaling_factor() if difference > 0 else config.get_downscaling_factor()
        scaled = math.ceil(current + factor * difference)
        return scaled - 1 if math.ceil(desired) < current and scaled == current else scaled

    def _delayed(self, now: float, wanted: int, target: int) -> tuple[int, float | None]:
        """What is wanted after the delay; with when that is over."""
        direction = (target > wanted) - (target < wanted)
        if direction != self._direction:
            self._direction, self._since_s = direction, now
        if not direction:
            return wanted, None
        config = self.config
        if direction > 0:
            delay_s = config.upscale_delay_s
        elif wanted == 1 and config.downscale_to_zero_delay_s is not None:
            delay_s = config.downscale_to_zero_delay_s
        else:
            delay_s = config.downscale_delay_s
        if direction < 0 and wanted > 1:
            target = max(1, target)  # to zero it goes from one only, after a delay of its own
        due_s = self._since_s + delay_s
        if now + EPSILON_S < due_s:
            return wanted, due_s
        self._direction = 0
        return target, None


def _aggregated(
    raw: Mapping[str, Mapping[str, Iterable[tuple[float, float]]]], how: AggregationFunction
) -> dict[str, dict[str, float]]:
    return {
        name: {replica: _one([value for _, value in points], how) for replica, points in series.items()}
        for name, series in raw.items()
    }


def _one(values: Sequence[float], how: AggregationFunction) -> float:
    if how is AggregationFunction.MAX:
        return max(values)
    if how is AggregationFunction.MIN:
        return min(values)
    return sum(values) / len(values)
