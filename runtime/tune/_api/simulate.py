"""Studies in seconds that would take days."""

from __future__ import annotations

from typing import Any

from runtime.tune._api.tuner import Tuner


def simulate(tuner: Tuner, curves: Any, workers: int = 1, start_s: float = 0.0) -> Any:
    """Runs the tuner's experiment on a virtual clock: with its searcher, scheduler, stopper and time budget, and with
    curves in the place of its trainable. Nothing is started, and nothing is written.

    Args:
        tuner: of the experiment. Its searcher and scheduler are used up: make a new one for each simulation.
        curves: `curves(config, iteration)` returns the metrics of an iteration, counted from 1, or None where the trial
            ends. `curves(config, iteration, previous)` gets the metrics of the iteration before, too: those of the
            checkpoint that the trial goes on from, which may be another trial's. The metric `time_this_iter_s` says how
            long the iteration takes, in seconds; 1, where there is none.
        workers: how many trials run at a time.
        start_s: how long the start of a trial's process takes.

    Returns:
        A ResultGrid with `seconds`, how long the experiment would have taken, and `busy`, the share of the workers'
        time in which they had a trial.

    Raises:
        ValueError: there is no worker.
    """
    from runtime.tune._run import driver
    from runtime.tune._run.simulation import SimulatedGrid

    if workers < 1:
        raise ValueError(f"workers must be at least 1, not {workers}.")
    definition = tuner._definition
    trials, cluster, seconds = driver.simulated(definition, curves, workers, start_s)
    grid = SimulatedGrid(trials, "simulated", definition.tune.metric, definition.tune.mode)
    grid.seconds = seconds
    grid.busy = cluster.busy_s / (workers * seconds) if seconds else 0.0
    return grid
