"""How many nodes may be taken out of work at the same time, by cause."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from autoscaler.config import Budgets, Cause
from autoscaler.instances import Instance, InstanceState


@dataclass(slots=True)
class Disruptions:
    """The nodes that drain, counted, against what the operator allows. A plan takes from it as it goes.

    Idle nodes miss nobody, so they have a limit only if one was set for them, and do not count against that of
    the others. What a person gives up or drains has no limit.
    """

    budgets: Budgets
    draining: dict[Cause, int]

    @classmethod
    def of(cls, budgets: Budgets, instances: Iterable[Instance]) -> Disruptions:
        draining: dict[Cause, int] = {}
        for instance in instances:
            if instance.state is InstanceState.DRAINING:
                draining[instance.cause] = draining.get(instance.cause, 0) + 1
        return cls(budgets, draining)

    @property
    def in_all(self) -> int:
        """How many count against the limit of all causes."""
        return sum(count for cause, count in self.draining.items() if cause not in _FREE)

    def left(self, cause: Cause) -> int | None:
        """How many more may be drained for the cause; None: any number."""
        own = self.budgets.max_disrupted_by.get(cause)
        left = [] if own is None else [own - self.draining.get(cause, 0)]
        if cause not in _FREE:
            left.append(self.budgets.max_disrupted - self.in_all)
        return max(0, min(left)) if left else None

    def take(self, cause: Cause) -> bool:
        """Counts one more, if it may be."""
        if self.left(cause) == 0:
            return False
        self.draining[cause] = self.draining.get(cause, 0) + 1
        return True


_FREE = (Cause.IDLE, Cause.UNWANTED, Cause.BY_HAND)
