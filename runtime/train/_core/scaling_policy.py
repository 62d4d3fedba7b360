"""How many workers a run has. Pure."""

from __future__ import annotations

from runtime._controllers import policies


class Gangs(policies.AllOrNone):
    """One gang of workers, and others that are added to it. When one member is dead for good, so are all.

    Args:
        size: of the first gang, and of the one that replaces all.
    """

    def __init__(self, size: int) -> None:
        super().__init__(size, failures=-1)
        self._more = 0

    def add(self, count: int) -> None:
        """One more gang. `Group.adjust` must follow."""
        self._more = count

    def decide(self, standing: policies.Standing, now: float) -> policies.Plan:
        more, self._more = self._more, 0
        plan = super().decide(standing, now)
        is_whole = plan == policies.Plan() and not standing.draining and standing.size
        return policies.Plan(create=more) if more and is_whole else plan


class Size:
    """The number of workers of a run.

    Args:
        least, most: equal, where it does not change.
    """

    def __init__(self, least: int, most: int) -> None:
        self.least = least
        self.most = most

    @property
    def is_elastic(self) -> bool:
        """Whether it can change."""
        return self.least < self.most

    def first(self, room: int) -> int:
        """How many workers are started, where there is room for so many. Where there is too little, the least: then
        they wait for machines."""
        return max(self.least, min(room, self.most))

    def more(self, members: int, room: int) -> int:
        """How many are added to `members`."""
        return max(0, min(room, self.most - members))

    def is_enough(self, ready: int, members: int, has_waited: bool) -> bool:
        """Whether those that are ready begin, or wait for others.

        Args:
            ready: how many are.
            members: those that start counted as well.
            has_waited: for as long as an elastic run waits.
        """
        if not self.is_elastic:
            return ready == self.most
        return ready >= self.least and (ready == members or has_waited)
