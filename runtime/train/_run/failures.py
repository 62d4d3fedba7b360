"""Why a run failed, in words."""

from __future__ import annotations

from collections.abc import Mapping

from runtime.exceptions import ActorDiedError, RayActorError, RayTaskError
from runtime.train._api.exceptions import (
    ControllerError,
    PreemptionError,
    TrainingFailedError,
    WorkerGroupError,
)
from runtime.train._api.preemption import PreemptionInfo
from runtime.train._core.plan import Failures

SHOWN = 3
"""Ranks whose remote traceback is shown."""


def by_rank(errors: Mapping[int, BaseException]) -> dict[int, Exception]:
    """The errors of ranks as the user raised them, where they did."""
    return {rank: cause(error) for rank, error in sorted(errors.items())}


def cause(error: BaseException) -> Exception:
    """The user's exception, where it is one."""
    found = getattr(error, "cause", None) if isinstance(error, RayTaskError) else None
    chosen = found if isinstance(found, Exception) else error
    return chosen if isinstance(chosen, Exception) else RuntimeError(repr(chosen))


def failure(error: BaseException) -> TrainingFailedError:
    """What `fit` raises."""
    if not isinstance(error, Failures):
        return ControllerError(cause(error))
    if error.preempted:
        return PreemptionError(PreemptionInfo.of(error.preempted))
    return WorkerGroupError("\n".join([f"{error}", *_lines(error.errors)]), by_rank(error.errors))


def summary(errors: Mapping[int, BaseException]) -> str:
    """A failure in one line."""
    return "; ".join(_line(rank, errors[rank]) for rank in _ordered(errors))


def _ordered(errors: Mapping[int, BaseException]) -> list[int]:
    """The ranks, those first whose process has ended: the errors of others may follow from that."""
    return sorted(errors, key=lambda rank: (not isinstance(errors[rank], RayActorError), rank))


def _line(rank: int, error: BaseException) -> str:
    if isinstance(error, RayActorError):
        known = error.args[0] if isinstance(error, ActorDiedError) else None
        return f"Rank {rank}: {known if isinstance(known, str) else error}"
    raised = cause(error)
    return f"Rank {rank}: {type(raised).__name__}: {raised}"


def _lines(errors: Mapping[int, BaseException]) -> list[str]:
    ordered = _ordered(errors)
    lines = [_line(rank, errors[rank]) for rank in ordered]
    raised = [rank for rank in ordered if isinstance(errors[rank], RayTaskError)]
    for rank in raised[:SHOWN]:
        lines.append(f"On rank {rank}:\n{getattr(errors[rank], 'traceback_str', '')}".rstrip())
    return lines
