"""Which checkpoints of a run are kept. Pure.

With a metric the best are kept, otherwise the latest. A checkpoint without the metric, or whose metric is NaN, is worse
than all others; of equally good ones the later is better. The latest is kept in any case, because the run goes on from
it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

Committed = Sequence[tuple[str, Mapping[str, Any]]]
"""Names and metrics of checkpoints, oldest first."""


def to_delete(
    committed: Committed,
    num_to_keep: int | None,
    attribute: str | None,
    order: str,
    protected: Collection[str] = (),
) -> list[str]:
    """The names of those that are not kept, oldest first.

    Args:
        committed: the checkpoints.
        num_to_keep: how many; None: all.
        attribute: the metric that ranks them, "outer/inner" for one in a dict; None: the later the better.
        order: whether the "max" or the "min" of it is best.
        protected: names of those that something else needs, for example their validation.

    Raises:
        ValueError: a metric is no number.
    """
    if num_to_keep is None or not committed:
        return []
    kept = {*best(committed, num_to_keep, attribute, order), committed[-1][0], *protected}
    return [name for name, _ in committed if name not in kept]


def best(committed: Committed, count: int | None, attribute: str | None, order: str) -> list[str]:
    """The names of the best, the best last.

    Args:
        committed: the checkpoints.
        count: how many at most; None: all.
        attribute, order: see `to_delete`.

    Raises:
        ValueError: a metric is no number.
    """
    scores = {name: _score(name, metrics, attribute, order) for name, metrics in committed}
    ranked = sorted(scores, key=scores.__getitem__)  # is stable: the later of two equal ones is better
    return ranked if count is None else ranked[-count:]


def lookup(metrics: Mapping[str, Any], attribute: str) -> Any:
    """The metric of a name, "outer/inner" for one in a dict; None: there is none."""
    if attribute in metrics:
        return metrics[attribute]
    outer, separator, inner = attribute.partition("/")
    while separator:
        if isinstance(metrics.get(outer), Mapping):
            found = lookup(metrics[outer], inner)
            if found is not None:
                return found
        following, separator, inner = inner.partition("/")
        outer = f"{outer}/{following}"
    return None


def _score(name: str, metrics: Mapping[str, Any], attribute: str | None, order: str) -> tuple[bool, float]:
    value = lookup(metrics, attribute) if attribute is not None else None
    if value is None:
        return False, 0.0
    try:
        if isinstance(value, str | bytes):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(
            f"checkpoint_score_attribute is {attribute!r}, which must be a number, but in the metrics of {name} it "
            f"is {value!r:.100}."
        ) from None
    if number != number:
        return False, 0.0
    return True, number if order == "max" else -number
