"""Reports of the ranks, put together: the n-th report of a run is complete when every rank has given its n-th, with all
files. Pure.

A rank does not wait for others unless it asked to; so ranks may be many reports apart.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from .records import Asked, Reported, encoded


class Complete(msgspec.Struct, frozen=True):
    """A report of all ranks.

    Attributes:
        number: within the attempt.
        metrics: pickled, by rank.
        checkpoint: the name of the checkpoint's folder; "": there is none.
        parts: the encoded parts of the ranks that have files.
        validation: see `records.Reported`.
    """

    number: int
    metrics: list[bytes]
    checkpoint: str = ""
    parts: list[bytes] = []
    validation: bytes = b""


class Ledger:
    """The reports and questions of one attempt."""

    def __init__(self, world_size: int) -> None:
        self._reports: list[deque[Reported]] = [deque() for _ in range(world_size)]
        self._parts: list[dict[int, bytes]] = [{} for _ in range(world_size)]
        self._counts = [0] * world_size
        self._questions: list[deque[Asked]] = [deque() for _ in range(world_size)]
        self._has_returned: set[int] = set()
        self.completed = 0
        """How many reports are complete."""

    def report(self, rank: int, reported: Reported) -> None:
        """A rank's next report."""
        self._reports[rank].append(reported)
        self._counts[rank] += 1

    def upload(self, rank: int, number: int, part: bytes) -> None:
        """A rank's files of a report are there. May come before or after the report."""
        self._parts[rank][number] = part

    def ask(self, rank: int, question: Asked) -> None:
        """A rank's next question."""
        self._questions[rank].append(question)

    def returned(self, rank: int) -> None:
        """A rank gives no more reports."""
        self._has_returned.add(rank)

    @property
    def counts(self) -> Sequence[int]:
        """How many reports each rank has given."""
        return self._counts

    # ------------------------------------------------------------ what comes out

    def take_complete(self) -> list[Complete]:
        """The reports that have become complete, in order."""
        found = []
        while all(self._is_there(rank) for rank in range(len(self._reports))):
            row = [reports.popleft() for reports in self._reports]
            number = self.completed
            parts = [self._parts[rank].pop(number) for rank, one in enumerate(row) if one.checkpoint]
            name = next((one.checkpoint for one in row if one.checkpoint), "")
            validation = next((one.validation for one in row if one.validation), b"")
            found.append(Complete(number, [one.metrics for one in row], name, parts, validation))
            self.completed += 1
        return found

    def take_answers(self) -> list[tuple[int, bytes]]:
        """The questions that all ranks have asked: number, and what the ranks said, encoded (`records.Answered`).

        Raises:
            ValueError: the ranks ask different things.
        """
        found = []
        while all(self._questions):
            row = [questions.popleft() for questions in self._questions]
            different = {one.what: rank for rank, one in enumerate(row)}
            if len(different) > 1:
                said = ", ".join(f"rank {rank} is in {what}()" for what, rank in different.items())
                raise ValueError(f"The ranks call different collective functions: {said}.")
            found.append((row[0].number, encoded([one.data for one in row])))
        return found

    # ------------------------------------------------------------ who waits for whom

    def waiting(self) -> dict[int, set[int]]:
        """The ranks that wait for others, and for whom. One that has returned waits for its checkpoints."""
        waits: dict[int, set[int]] = {}
        for rank, reports in enumerate(self._reports):
            has_returned = rank in self._has_returned
            number = next(
                (one.number for one in reports if one.is_waiting or (one.checkpoint and has_returned)), None
            )
            if number is not None:
                waits[rank] = {
                    other for other, count in enumerate(self._counts) if count <= number and other != rank
                }
        for rank, questions in enumerate(self._questions):
            if questions:
                waits.setdefault(rank, set()).update(
                    other for other, asked in enumerate(self._questions) if not asked
                )
        return {rank: others for rank, others in waits.items() if others}

    def divergence(self) -> str:
        """Why the ranks cannot go on together; "" if they can. A rank waits for one that has returned."""
        for rank, others in self.waiting().items():
            gone = sorted(others & self._has_returned)
            if gone:
                what = (
                    f"waits in {self._questions[rank][0].what}()"
                    if self._questions[rank]
                    else "reports a checkpoint"
                )
                counts = ", ".join(f"rank {other} after {self._counts[other]} reports" for other in gone)
                return (
                    f"Rank {rank} {what} in its report {self._counts[rank]}, which all ranks must give, but the "
                    f"training function has returned on {counts}. Call report() equally often on all ranks."
                )
        return ""

    def left_over(self) -> str:
        """After all ranks have returned: the checkpoint that some of them reported and others did not; "" if there is
        none."""
        for rank, reports in enumerate(self._reports):
            for one in reports:
                if one.checkpoint:
                    counts = ", ".join(f"rank {other}: {count}" for other, count in enumerate(self._counts))
                    return (
                        f"Rank {rank} has a checkpoint in its report {one.number + 1}, which other ranks did not "
                        f"give, so it is not committed. Reports of the ranks: {counts}. Call report() equally often "
                        "on all ranks."
                    )
        return ""

    def _is_there(self, rank: int) -> bool:
        reports = self._reports[rank]
        return bool(reports) and (not reports[0].checkpoint or reports[0].number in self._parts[rank])
