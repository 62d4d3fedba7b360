"""Where functions run: strategies, and the options that the methods of data sets take for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runtime.data._plan.nodes import Compute, Pool

RESOURCES = (
    "num_cpus num_gpus memory resources accelerator_type runtime_env max_calls label_selector fallback_strategy"
).split()


@dataclass(frozen=True)
class TaskPoolStrategy:
    """Functions run in tasks. `size`: how many at a time; None: as many as there are CPUs for."""

    size: int | None = None


@dataclass(frozen=True)
class ActorPoolStrategy:
    """Functions run in actors, which construct a class once.

    Attributes:
        size: exactly so many actors; instead of the other sizes.
        min_size, max_size, initial_size: the pool grows while work waits, and shrinks when actors are idle.
        max_tasks_in_flight_per_actor: of these one runs, the others wait in the actor.
    """

    size: int | None = None
    min_size: int | None = None
    max_size: int | None = None
    initial_size: int | None = None
    max_tasks_in_flight_per_actor: int | None = None

    def __post_init__(self) -> None:
        if self.size is not None and (self.min_size, self.max_size, self.initial_size) != (None, None, None):
            raise ValueError("An ActorPoolStrategy has either `size` or the sizes between which it changes.")
        for name in ("size", "min_size", "max_size", "initial_size", "max_tasks_in_flight_per_actor"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}.")
        least, most = self.min_size or 1, self.max_size
        if most is not None and most < least:
            raise ValueError(f"max_size ({most}) is smaller than min_size ({least}).")

    def pool(self) -> Pool:
        """The pool of the plan."""
        least = self.size or self.min_size or 1
        most = self.size or self.max_size
        initial = self.size or self.initial_size or least
        return Pool(least, most, initial, self.max_tasks_in_flight_per_actor or 2)


def compute_of(
    fn: Any, compute: Any, concurrency: Any, resources: Mapping[str, Any], remote_args: Mapping[str, Any]
) -> Compute:
    """Where a function runs.

    Args:
        fn: the function or class.
        compute: a strategy.
        concurrency: a number, (least, most) or (least, most, initial).
        resources: what the named parameters give; None: not given.
        remote_args: further options of `remote`.

    Raises:
        ValueError, TypeError: they do not fit together.
    """
    options = {name: value for name, value in resources.items() if value is not None and name in RESOURCES}
    options.update(remote_args)
    if compute is not None and concurrency is not None:
        raise ValueError("Give either `compute` or `concurrency`.")
    if isinstance(compute, str):
        raise ValueError(f"compute={compute!r}: use ActorPoolStrategy(size=...) or TaskPoolStrategy().")
    if isinstance(compute, ActorPoolStrategy):
        return Compute(options, pool=compute.pool())
    if isinstance(compute, TaskPoolStrategy):
        if isinstance(fn, type):
            raise ValueError(f"{fn.__name__} is a class: it needs an ActorPoolStrategy.")
        return Compute(options, most=compute.size)
    if compute is not None:
        raise TypeError(f"compute must be a TaskPoolStrategy or an ActorPoolStrategy, not {compute!r}.")
    if not isinstance(fn, type):
        if concurrency is not None and not isinstance(concurrency, int):
            raise ValueError(
                f"concurrency of a function is a number, not {concurrency!r}: only pools of actors change."
            )
        _check_concurrency(concurrency)
        return Compute(options, most=concurrency)
    match concurrency:
        case None:
            return Compute(options, pool=ActorPoolStrategy().pool())
        case int():
            _check_concurrency(concurrency)
            return Compute(options, pool=ActorPoolStrategy(size=concurrency).pool())
        case (least, most):
            return Compute(options, pool=ActorPoolStrategy(min_size=least, max_size=most).pool())
        case (least, most, initial):
            strategy = ActorPoolStrategy(min_size=least, max_size=most, initial_size=initial)
            return Compute(options, pool=strategy.pool())
    raise ValueError(
        f"concurrency is a number, (least, most) or (least, most, initial), not {concurrency!r}."
    )


def _check_concurrency(concurrency: int | None) -> None:
    if concurrency is not None and concurrency < 1:
        raise ValueError(f"concurrency must be at least 1, not {concurrency}.")
