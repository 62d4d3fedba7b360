"""What the controller of a run has its keeper do, and in which order. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from runtime._controllers.controller import Effect, Key, Perform, Wait

from .plan import Keeper
from .reports import Complete

TIDY = "tidy"


class Keeping:
    """One thing at a time, in order. Only tidying goes on beside it: nobody but the end waits for that."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._queue: deque[Perform] = deque()  # the first is under way
        self._complete: list[Complete] = []  # not yet given to the keeper
        self._leftovers: list[Any] = []
        self._is_tidying = False

    @property
    def is_idle(self) -> bool:
        """Whether nothing is to be done, apart from tidying."""
        return not self._queue and not self._complete

    @property
    def is_tidy(self) -> bool:
        """Whether nothing is to be tidied."""
        return not self._is_tidying

    def put(self, key: Key, function: Callable[..., Any], args: Sequence[Any] = ()) -> list[Effect]:
        """Has the keeper do something, after what it does now. It ends as ("keeper", key)."""
        self._queue.append(Perform(("keeper", key), function, args))
        return [self._queue[0]] if len(self._queue) == 1 else []

    def keep(self, reports: Sequence[Complete] = ()) -> list[Effect]:
        """Has reports committed. One batch is with the keeper at a time; those that come meanwhile are the next."""
        self._complete += reports
        if not self._complete or any(perform.key == ("keeper", "keep") for perform in self._queue):
            return []
        batch, self._complete = self._complete, []
        return self.put("keep", self._keeper.keep, (batch,))

    def done(self) -> tuple[Perform, list[Effect]]:
        """The first has ended: what it was, and what follows."""
        first = self._queue.popleft()
        return first, [self._queue[0]] if self._queue else []

    def drop(self) -> None:
        """Nothing more is kept."""
        self._queue.clear()
        self._complete.clear()

    def tidy(self, leftovers: Any = None) -> list[Effect]:
        """Has something tidied, after what is tidied now. It ends as TIDY; then `tidied` must follow."""
        if leftovers is not None:
            self._leftovers.append(leftovers)
        if self._is_tidying or not self._leftovers:
            return []
        self._is_tidying = True
        leftovers, self._leftovers = self._leftovers, []
        return [Perform(TIDY, self._keeper.tidy, (leftovers,))]

    def tidied(self) -> list[Effect]:
        """What was to be tidied is."""
        self._is_tidying = False
        return self.tidy()

    def waits(self, since_s: float) -> list[Wait]:
        """What the run waits for here."""
        waits = []
        if self._queue:
            waits.append(Wait("keeper", f"the run's folder: {self._queue[0].key}", since_s))
        if self._is_tidying:
            waits.append(Wait(TIDY, "old checkpoints to be removed", since_s))
        return waits
