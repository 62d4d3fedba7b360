"""Which leases are to come back because others wait. Pure.

An owner keeps a lease for as long as it has work for it, so the first owner could keep all workers without end. When a
demand waits, those who have more than their share give leases back, after the task that runs: shares are equal among
jobs, and within a job among its classes. Nobody loses a lease that it has had for less than a slice of time, so that
more claimants than workers take turns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from .resources import fits

SLICE_S = 0.1
RETRY_S = 0.3
"""A recalled lease that is not back by then runs a long task: another one is recalled as well."""


class Held(Protocol):
    """A lease. `holder`: whose it is within its job; `recalled_s`: since when it is asked back, if it is."""

    @property
    def job_id(self) -> bytes: ...
    @property
    def holder(self) -> Hashable: ...
    @property
    def resources(self) -> Mapping[str, int]: ...
    @property
    def since_s(self) -> float: ...
    @property
    def recalled_s(self) -> float | None: ...


L = TypeVar("L", bound=Held)
Want = tuple[bytes, Hashable, Mapping[str, int]]
"""A worker that somebody waits for: job, holder, resources."""


class _Shares:
    """Who has how much."""

    def __init__(self, held: Iterable[Held]) -> None:
        staying = [lease for lease in held if lease.recalled_s is None]
        self._jobs = Counter(lease.job_id for lease in staying)
        self._holders = Counter(lease.holder for lease in staying)

    def move(self, job_id: bytes, holder: Hashable, count: int) -> None:
        """Adds to the number of its leases."""
        self._jobs[job_id] += count
        self._holders[holder] += count

    def owes(self, lease: Held, job_id: bytes, holder: Hashable) -> bool:
        """Whether the lease's holder has more than the other."""
        if lease.job_id != job_id:
            return self._jobs[lease.job_id] > self._jobs[job_id]
        return self._holders[lease.holder] > self._holders[holder]

    def of_job(self, lease: Held) -> int:
        return self._jobs[lease.job_id]


def recalls(
    wants: Iterable[Want], held: Sequence[L], available: Mapping[str, int], now: float
) -> tuple[list[L], float | None]:
    """The leases to ask back now, and when to look again at the latest if nothing changes before."""
    shares = _Shares(held)
    free = dict(available)
    due: list[float] = []
    for lease in held:
        if lease.recalled_s is not None and now < lease.recalled_s + RETRY_S:
            _add(free, lease.resources)
            due.append(lease.recalled_s + RETRY_S)
    left = [lease for lease in held if lease.recalled_s is None]
    found: list[L] = []
    for job_id, holder, resources in wants:
        chosen: list[L] = []
        room = dict(free)
        left.sort(key=lambda lease: (-shares.of_job(lease), lease.since_s))
        for lease in left:
            if fits(resources, room):
                break
            if not shares.owes(lease, job_id, holder) or not _helps(lease.resources, resources, room):
                continue
            if now < lease.since_s + SLICE_S:
                due.append(lease.since_s + SLICE_S)
                continue
            chosen.append(lease)
            shares.move(lease.job_id, lease.holder, -1)
            _add(room, lease.resources)
        if fits(resources, room):
            found += chosen
            left = [lease for lease in left if lease not in chosen]
            free = room
            _add(free, resources, -1)
            shares.move(job_id, holder, 1)
        else:
            for lease in chosen:
                shares.move(lease.job_id, lease.holder, 1)
    if found:
        due.append(now + RETRY_S)
    return found, min(due, default=None)


def _helps(given: Mapping[str, int], wanted: Mapping[str, int], room: Mapping[str, int]) -> bool:
    return any(given.get(name) and room.get(name, 0) < amount for name, amount in wanted.items())


def _add(room: dict[str, int], resources: Mapping[str, int], sign: int = 1) -> None:
    for name, amount in resources.items():
        room[name] = room.get(name, 0) + sign * amount
