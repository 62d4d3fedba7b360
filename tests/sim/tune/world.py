"""Experiments on a virtual clock whose drivers die and whose trials fail, by a seed."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from runtime import tune
from runtime._controllers.controller import ActorDied, Call, Effect, Failed
from runtime._controllers.loop import Loop
from runtime.tune._core import records
from runtime.tune._core.experiment import Experiment, Setting
from runtime.tune._core.study import Study
from runtime.tune._core.trial import Saved, Trial
from runtime.tune._run import driver, simulation
from runtime.tune._run.simulation import VirtualCluster


class Killed(Exception):
    """The driver dies."""


class Book:
    """A keeper whose journal may end in the middle.

    Args:
        lives: the driver dies when it has written so many records; -1: never.
    """

    def __init__(self, lives: int = -1) -> None:
        self.records: list[bytes] = []
        self.told: list[tuple[str, str]] = []
        self.deleted: list[str] = []
        self.lines: list[str] = []
        self._lives = lives

    def write(self, record: records.Record) -> None:
        if self._lives == len(self.records):
            raise Killed
        self.records.append(records.encode(record))

    def tell(self, what: str, trial: Trial, **_info: Any) -> None:
        self.told.append((what, trial.trial_id))

    def delete(self, trial: Trial, saved: Saved) -> None:
        self.deleted.append(saved.checkpoint.path)

    def log_line(self, file_name: str, text: str) -> None:
        self.lines.append(f"{file_name}: {text}")

    def journal(self) -> list[records.Record]:
        return list(records.decode(b"".join(self.records)))


class Unsafe(VirtualCluster):
    """Workers whose processes end, and functions that raise, now and then."""

    def __init__(
        self,
        curve: simulation.Curve,
        workers: int,
        rng: random.Random,
        share: float,
        saves_always: bool = True,
    ) -> None:
        super().__init__(curve, workers, start_s=0.5, saves_always=saves_always)
        self._rng = rng
        self._share = share
        self.failures = 0

    def carry_out(self, effect: Effect) -> None:
        if isinstance(effect, Call) and self._rng.random() < self._share:
            self.failures += 1
            if self._rng.random() < 0.5:
                self._later(0.2, Failed(effect.key, RuntimeError("by chance")))
            else:
                self._later(0.2, ActorDied(effect.actor, "by chance"))
                self._later(0.3, Failed(effect.key, RuntimeError("the actor died")))
        else:
            super().carry_out(effect)


def nothing(config: dict[str, Any]) -> None:
    """Stands for the trainable."""


def study_of(
    space: dict[str, Any], stop: Any = None, failures: int = 0, saves: bool = False, **config: Any
) -> Study:
    """A study of a space, whose trainable can be told to save checkpoints or not."""
    run = tune.RunConfig(name="study", stop=stop, failure_config=tune.FailureConfig(max_failures=failures))
    tuner = tune.Tuner(nothing, param_space=space, tune_config=tune.TuneConfig(**config), run_config=run)
    study = driver.virtual_study(tuner._definition)
    study.rules = msgspec.structs.replace(study.rules, saves=saves)
    return study


def setting(
    study: Study, most_waiting: int = 4, reuses: bool = False, ahead: int = 1, leaves: bool = False
) -> Setting:
    return Setting(
        runner=None,
        args=(),
        options_of=simulation.options_of,
        place=str,
        remove=str,
        leaves=leaves,
        reuses=reuses,
        most_waiting=most_waiting,
        ahead=ahead,
    )


def run(study: Study, cluster: VirtualCluster, **how: Any) -> list[Trial]:
    """Runs a study to its end, or until its driver dies."""
    experiment = Experiment(study, setting(study, **how), lambda: None)
    trials: list[Trial] = Loop(experiment, cluster, "simulated", float("inf")).run()
    return trials
