"""The workloads of tune.py through a module with Ray Tune's API, and how they are timed."""

from __future__ import annotations

import contextlib
import functools
import importlib
import pickle
import shutil
import statistics
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import tune_trials as trials
import tune_work as work
from comparison import Measuring
from data_input import MIB
from data_measuring import Timing, require
from store_watch import MemoryWatch, memory_bytes
from tune_killing import killed_study

SETTLE_S = 2.0
OURS = "runtime"
MANY = ("many no-op trials", "many no-op trials: cost of the first", "many no-op trials: cost of the last")
TABLES = "models of scikit-learn on real tables"
SIMULATED = ("simulated trials", "simulated trials: the whole")


class Workloads:
    """Of one engine.

    Args:
        timing: of it.
        sizes: of the workloads.
        budget_s: after so long an experiment that is measured by rates is stopped.
    """

    def __init__(self, timing: Timing, sizes: work.Sizes, budget_s: float) -> None:
        self.t = timing
        self.m: Measuring = timing.m
        self._sizes = sizes
        self._budget_s = budget_s
        self._tune: Any = importlib.import_module(f"{self.m.module}.tune")
        self._home = Path(tempfile.mkdtemp(prefix="bench-tune-"))

    def run(self) -> None:
        """Everything, on one cluster but for the study whose driver is killed."""
        parts = [
            self.warm,
            self.tpe,
            self.noop,
            self.asha,
            self.long,
            self.keeping,
            self.population,
            self.tables,
            self.memory,
        ]
        if self.m.module == OURS:
            parts += [self.many, self.simulated]
        self.m.ray.cloudpickle.register_pickle_by_value(trials)
        try:
            self.m.init(2)
            self._fit(trials.empty, {})  # what only the first fit of a process does
            for part in parts:
                self.m.guard(part)
            self.m.ray.shutdown()
            self.m.guard(self.killed)
        finally:
            with contextlib.suppress(Exception):
                self.m.ray.shutdown()
            shutil.rmtree(self._home, ignore_errors=True)

    def warm(self) -> None:
        def take() -> float:
            return statistics.median(self._fit(trials.empty, {})[1] for _ in range(self.m.rounds))

        self.t.take("an empty trial, warm", take)

    def tpe(self) -> None:
        def take() -> float:
            search = importlib.import_module(f"{self.m.module}.tune.search.optuna")
            grid, seconds = self._fit(
                trials.tpe,
                {"x": self._tune.uniform(-1, 1), "y": self._tune.uniform(-1, 1)},
                metric="loss",
                mode="min",
                search_alg=search.OptunaSearch(metric="loss", mode="min", seed=1),
                num_samples=self._sizes.tpe,
                time_budget_s=self._budget_s,
            )
            done = _finished(grid)
            losses = [trials.quadratic(each.config["x"], each.config["y"]) for each in done]
            work.check_tpe(losses)
            require(grid.get_best_result().metrics["loss"] == min(losses), "the best result is another one")
            return len(done) / seconds

        self.t.take("TPE: trials", take)

    def noop(self) -> None:
        names = ["no-op trials", "no-op trials, a fresh process each"]

        def part() -> None:
            rate, _ = self._noop(self._sizes.noop, time_budget_s=self._budget_s)
            for name in names:  # one measurement, beside two of the other tools
                self.m.note(name, rate)

        self.t.together(names, part)

    def _noop(self, count: int, callbacks: list[Any] | None = None, **tune_config: Any) -> tuple[float, int]:
        """Trials a second, and how many have finished."""
        grid, seconds = self._fit(
            trials.noop,
            {"x": self._tune.uniform(0, 1)},
            {"callbacks": callbacks} if callbacks else None,
            num_samples=count,
            **tune_config,
        )
        done = _finished(grid)
        require(all(each.metrics["loss"] == each.config["x"] for each in done), "a trial has a wrong result")
        require(len({each.config["x"] for each in done}) == len(done), "a configuration came twice")
        return len(done) / seconds, len(done)

    def asha(self) -> None:
        names = ["ASHA: results", "ASHA: trials"]
        self.t.together(names, functools.partial(self._asha, names))

    def _asha(self, names: list[str]) -> None:
        schedulers = importlib.import_module(f"{self.m.module}.tune.schedulers")
        grid, seconds = self._fit(
            trials.asha,
            {"x": self._tune.uniform(-1, 1)},
            metric="loss",
            mode="min",
            scheduler=schedulers.ASHAScheduler(
                time_attr="training_iteration",
                max_t=trials.RESULTS,
                grace_period=1,
                reduction_factor=work.FACTOR,
            ),
            num_samples=self._sizes.asha,
            time_budget_s=self._budget_s,
        )
        begun = [each for each in grid if each.metrics and "step" in each.metrics]
        for each in begun:
            expected = trials.curve(each.config["x"], each.metrics["step"])
            require(each.metrics["loss"] == expected, f"{each.metrics['loss']} in place of {expected}")
        steps = [each.metrics["step"] for each in begun]
        work.check_stops(steps)
        self.m.note(names[0], sum(steps) / seconds)
        self.m.note(names[1], len(steps) / seconds)

    def long(self) -> None:
        def take() -> float:
            count = self._sizes.long_results
            grid, seconds = self._fit(trials.long, {"results": count}, num_samples=work.LONG_TRIALS)
            found = [each.metrics["step"] for each in grid]
            require(found == [count] * work.LONG_TRIALS, f"the last steps are {found}")
            return work.LONG_TRIALS * count / seconds

        self.t.take("four long trials: results", take)

    def keeping(self) -> None:
        def take() -> float:
            sizes = self._sizes
            seeds = self._tune.grid_search(list(range(sizes.keeping)))
            kept = self._tune.CheckpointConfig(num_to_keep=2)
            grid, seconds = self._fit(
                trials.keeping, {"seed": seeds, "kept": sizes.kept}, {"checkpoint_config": kept}
            )
            for each in grid:
                with each.checkpoint.as_directory() as folder:
                    last = Path(folder, "blob").read_bytes()
                require(last == trials.blob(each.config["seed"], sizes.kept - 1), "a wrong checkpoint")
            return sizes.keeping * sizes.kept / seconds

        self.t.take("checkpoints of 1 MiB", take)

    def population(self) -> None:
        def take() -> float:
            schedulers = importlib.import_module(f"{self.m.module}.tune.schedulers")
            scheduler = schedulers.PopulationBasedTraining(
                time_attr="training_iteration",
                perturbation_interval=work.INTERVAL,
                hyperparam_mutations={"rate": self._tune.uniform(0.1, 1.0)},
                synch=True,
            )
            member = self._tune.with_resources(trials.member, {"CPU": 0.5})
            rates = self._tune.grid_search(list(work.RATES))
            grid, seconds = self._fit(
                member, {"rate": rates}, metric="value", mode="max", scheduler=scheduler
            )
            for each in grid:
                with each.checkpoint.as_directory() as folder:
                    used = pickle.loads(Path(folder, "rates").read_bytes())
                work.check_rates(used)
                require(each.metrics["value"] == sum(used), "a value is not the sum of its rates")
            require(any(each.metrics["changed"] for each in grid), "no member has copied another")
            return seconds

        self.t.take("PBT", take)

    def tables(self) -> None:
        def take() -> float:
            import tune_tables as tables  # which imports scikit-learn

            self.m.ray.cloudpickle.register_pickle_by_value(tables)
            found, total_s = [], 0.0
            for trainable, space, config in tables.studies(self.m.module):
                grid, seconds = self._fit(trainable, space, **config)
                found.append(grid.get_best_result(scope="all").metrics["accuracy"])
                total_s += seconds
            tables.check(found)
            return total_s

        self.t.take(TABLES, take)

    def memory(self) -> None:
        names = ["memory: peak with 2 trials", "memory: at rest after the runs"]

        def part() -> None:
            with MemoryWatch() as watch:
                self._fit(trials.hold, {}, num_samples=2)
            self.m.note(names[0], watch.peak_bytes / MIB)
            time.sleep(SETTLE_S)
            self.m.note(names[1], memory_bytes() / MIB)

        self.t.together(names, part)

    def many(self) -> None:
        """Processes are reused; what a trial costs at the beginning and at the end."""

        class Clock(self._tune.Callback):  # type: ignore[misc,name-defined]
            def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
                ends.append(time.perf_counter())

        ends: list[float] = []

        def part() -> None:
            start = time.perf_counter()
            rate, count = self._noop(self._sizes.many, callbacks=[Clock()], reuse_actors=True)
            require(count == self._sizes.many == len(ends), f"{count} trials in place of {self._sizes.many}")
            tenth = count // 10
            self.m.note(MANY[0], rate)
            self.m.note(MANY[1], 1000 * (ends[tenth - 1] - start) / tenth)
            self.m.note(MANY[2], 1000 * (ends[-1] - ends[-tenth - 1]) / tenth)

        self.t.together(list(MANY), part)

    def simulated(self) -> None:
        """ASHA with curves in the place of trials."""

        def part() -> None:
            schedulers = importlib.import_module(f"{self.m.module}.tune.schedulers")
            tuner = self._tune.Tuner(
                trials.asha,
                param_space={"x": self._tune.uniform(-1, 1)},
                tune_config=self._tune.TuneConfig(
                    metric="loss",
                    mode="min",
                    num_samples=self._sizes.simulated,
                    scheduler=schedulers.ASHAScheduler(
                        max_t=trials.RESULTS, grace_period=1, reduction_factor=work.FACTOR
                    ),
                ),
            )
            start = time.perf_counter()
            grid = self._tune.simulate(tuner, _curve, workers=100)
            seconds = time.perf_counter() - start
            require(len(grid) == self._sizes.simulated, f"{len(grid)} trials were simulated")
            work.check_stops([each.metrics["training_iteration"] for each in grid])
            self.m.note(SIMULATED[0], len(grid) / seconds)
            self.m.note(SIMULATED[1], seconds)

        self.t.together(list(SIMULATED), part)

    def killed(self) -> None:
        names = ["a killed driver: until all is done", "a killed driver: finished trials run again"]

        def part() -> None:
            found = killed_study(self.m.module, Path(tempfile.mkdtemp(dir=self._home)), self._sizes)
            for name, value in zip(names, found, strict=True):
                self.m.note(name, value)

        self.t.together(names, part)

    def _fit(
        self,
        trainable: Any,
        space: trials.Config,
        run_config: dict[str, Any] | None = None,
        **tune_config: Any,
    ) -> tuple[Any, float]:
        """The results, and seconds."""
        tune = self._tune
        tuner = tune.Tuner(
            trainable,
            param_space={"module": self.m.module, **space},
            tune_config=tune.TuneConfig(**tune_config),
            run_config=tune.RunConfig(
                name=uuid.uuid4().hex, storage_path=str(self._home / "runs"), verbose=0, **(run_config or {})
            ),
        )
        start = time.perf_counter()
        grid = tuner.fit()
        seconds = time.perf_counter() - start
        require(not grid.errors, f"a trial failed: {grid.errors[:1]}")
        return grid, seconds


def _finished(grid: Any) -> list[Any]:
    """The results of trials that have finished: the budget may have stopped the others."""
    return [each for each in grid if each.metrics and "loss" in each.metrics]


def _curve(config: trials.Config, iteration: int) -> trials.Config | None:
    if iteration > trials.RESULTS:
        return None
    return {"loss": trials.curve(config["x"], iteration)}
