"""How many trials tune.py runs, whoever runs them, and the checks of what they found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from data_measuring import require
from tune_trials import ITERATIONS, RESULTS

FACTOR = 4
"""Of the rungs of ASHA."""
RATES, INTERVAL = (0.1, 0.4, 0.7, 1.0), 5
"""Of the population."""
LONG_TRIALS = 4
UNKNOWN = 2
"""Trials that have written their last line, and of which a killed driver may not know: one for each CPU."""


@dataclass(frozen=True)
class Sizes:
    """How many there are of what.

    Attributes:
        tpe, noop, asha: trials.
        long_results: of each of four trials.
        keeping, kept: trials, and the checkpoints of each.
        many: no-op trials by processes that are reused.
        simulated: trials in simulated time.
        study, killed_at: trials, and how many have finished when their driver is killed.
    """

    tpe: int
    noop: int
    asha: int
    long_results: int
    keeping: int
    kept: int
    many: int
    simulated: int
    study: int
    killed_at: int


def sizes(scale: float) -> Sizes:
    """All of them, or a part."""

    def scaled(count: int, least: int) -> int:
        return max(least, round(count * scale))

    study = scaled(60, 6)
    return Sizes(
        tpe=scaled(100, 5),
        noop=scaled(1000, 10),
        asha=scaled(200, 12),
        long_results=scaled(250, 5),
        keeping=scaled(8, 2),
        kept=scaled(5, 3),
        many=scaled(10_000, 20),
        simulated=scaled(100_000, 100),
        study=study,
        killed_at=study // 2,
    )


def check_tpe(losses: Sequence[float]) -> None:
    """It has searched, and not only drawn."""
    require(losses, "no trial of TPE has finished")
    require(
        len(losses) < 50 or min(losses) < 0.05, f"the least loss of {len(losses)} trials is {min(losses)}"
    )


def check_stops(steps: Sequence[int]) -> None:
    """Some trials were stopped early, and some were not."""
    require(RESULTS in steps and min(steps) < RESULTS, "ASHA has stopped every trial early, or none")


def check_rates(rates: Sequence[float]) -> None:
    """A member has gone through all its iterations."""
    require(len(rates) == ITERATIONS, f"a member has {len(rates)} iterations in place of {ITERATIONS}")
