"""The workloads of tune.py through what a user would take instead of a tuning library: Optuna alone, a pool of
processes, a fork for each trial, pipes."""

from __future__ import annotations

import functools
import multiprocessing
import multiprocessing.connection
import os
import pickle
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import tune_trials as trials
import tune_work as work
from comparison import ANCHORS
from data_measuring import Timing, require
from tune_killing import killed_study

OPTUNA, POOL, FORKS, PIPES = "Optuna", "pool", "a fork each", "pipes"
FORK: Any = multiprocessing.get_context("fork")


class Anchors:
    """Of what is installed here.

    Args:
        timing: of them.
        sizes: of the workloads.
    """

    def __init__(self, timing: Timing, sizes: work.Sizes) -> None:
        self.t = timing
        self.m = timing.m
        self._sizes = sizes
        self._home = Path(tempfile.mkdtemp(prefix="bench-tune-"))

    def run(self) -> None:
        parts = (self.tpe, self.noop, self.asha, self.long, self.keeping, self.population, self.killed)
        try:
            for part in parts:
                self.m.guard(part)
        finally:
            shutil.rmtree(self._home, ignore_errors=True)

    def tpe(self) -> None:
        def take() -> float:
            import optuna

            def objective(trial: Any) -> float:
                return trials.quadratic(trial.suggest_float("x", -1, 1), trial.suggest_float("y", -1, 1))

            start = time.perf_counter()
            study = _study(optuna.samplers.TPESampler(seed=1))
            study.optimize(objective, n_trials=self._sizes.tpe)
            rate = len(study.trials) / (time.perf_counter() - start)
            work.check_tpe([trial.value for trial in study.trials])
            return rate

        self.t.take("TPE: trials", take, OPTUNA)

    def noop(self) -> None:
        self.t.take("no-op trials", self._pooled, POOL)
        self.t.take("no-op trials, a fresh process each", self._forked, FORKS)

    def _pooled(self) -> float:
        values = [number / self._sizes.noop for number in range(self._sizes.noop)]
        start = time.perf_counter()
        with FORK.Pool(2) as pool:
            found = list(pool.imap(_noop, values, chunksize=1))
        rate = len(values) / (time.perf_counter() - start)
        require(found == [{"loss": value} for value in values], "the pool's results are wrong")
        return rate

    def _forked(self) -> float:
        start = time.perf_counter()
        for number in range(self._sizes.noop):
            reading, writing = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.write(writing, pickle.dumps(_noop(number)))
                os._exit(0)
            os.close(writing)
            with os.fdopen(reading, "rb") as answer:
                require(pickle.load(answer) == {"loss": number}, "a process gave a wrong result")
            os.waitpid(pid, 0)
        return self._sizes.noop / (time.perf_counter() - start)

    def asha(self) -> None:
        names = ["ASHA: results", "ASHA: trials"]
        self.t.together(names, functools.partial(self._asha, names), OPTUNA)

    def _asha(self, names: list[str]) -> None:
        import optuna

        steps = []

        def objective(trial: Any) -> float:
            x, step, loss = trial.suggest_float("x", -1, 1), 0, 0.0
            while step < trials.RESULTS:
                step += 1
                loss = trials.curve(x, step)
                trial.report(loss, step)
                if trial.should_prune():
                    break
            steps.append(step)
            return loss

        pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=work.FACTOR)
        start = time.perf_counter()
        study = _study(optuna.samplers.RandomSampler(seed=1), pruner=pruner)
        study.optimize(objective, n_trials=self._sizes.asha)
        seconds = time.perf_counter() - start
        work.check_stops(steps)
        self.m.note(names[0], sum(steps) / seconds, OPTUNA)
        self.m.note(names[1], len(steps) / seconds, OPTUNA)

    def long(self) -> None:
        """Four processes, each of which goes on when told so."""
        self.t.take("four long trials: results", self._long, PIPES)

    def _long(self) -> float:
        start, count = time.perf_counter(), self._sizes.long_results
        pipes = [FORK.Pipe() for _ in range(work.LONG_TRIALS)]
        workers = [FORK.Process(target=_send, args=(theirs, count)) for _, theirs in pipes]
        for worker in workers:
            worker.start()
        received, waiting = 0, [ours for ours, _ in pipes]
        while waiting:
            for ours in multiprocessing.connection.wait(waiting):
                step = ours.recv()["step"]  # type: ignore[union-attr]
                ours.send(True)  # type: ignore[union-attr]
                received += 1
                if step == count:
                    waiting.remove(ours)
        for worker in workers:
            worker.join()
        require(received == work.LONG_TRIALS * count, f"{received} results")
        return received / (time.perf_counter() - start)

    def keeping(self) -> None:
        """Files that are renamed; the last two are kept."""
        self.t.take("checkpoints of 1 MiB", self._keeping, POOL)

    def _keeping(self) -> float:
        sizes, folder = self._sizes, tempfile.mkdtemp(dir=self._home)
        start = time.perf_counter()
        with FORK.Pool(2) as pool:
            pool.map(_keep, [(folder, seed, sizes.kept) for seed in range(sizes.keeping)], chunksize=1)
        rate = sizes.keeping * sizes.kept / (time.perf_counter() - start)
        last = sizes.kept - 1
        for seed in range(sizes.keeping):
            require(
                Path(folder, f"{seed}-{last % 2}").read_bytes() == trials.blob(seed, last),
                "a wrong checkpoint",
            )
        return rate

    def population(self) -> None:
        """Rounds of a pool: the worst member goes on from the best one's state, with another rate."""
        self.t.take("PBT", self._population, POOL)

    def _population(self) -> float:
        state: list[tuple[list[float], float]] = [([], rate) for rate in work.RATES]
        start = time.perf_counter()
        with FORK.Pool(len(work.RATES)) as pool:
            for _ in range(trials.ITERATIONS // work.INTERVAL):
                rounds = pool.map(_member, state, chunksize=1)
                state = sorted(((rates, rates[-1]) for rates in rounds), key=lambda each: sum(each[0]))
                state[0] = (state[-1][0], state[-1][1] * 1.2)
        seconds = time.perf_counter() - start
        for rates, _ in state:
            work.check_rates(rates)
        return seconds

    def killed(self) -> None:
        names = ["a killed driver: until all is done", "a killed driver: finished trials run again"]

        def part() -> None:
            found = killed_study(ANCHORS, Path(tempfile.mkdtemp(dir=self._home)), self._sizes)
            for name, value in zip(names, found, strict=True):
                self.m.note(name, value, OPTUNA)

        self.t.together(names, part, OPTUNA)


def _study(sampler: Any, **options: Any) -> Any:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna.create_study(sampler=sampler, **options)


# ------------------------------------------------------------ in other processes


def _noop(x: float) -> dict[str, float]:
    return {"loss": x}


def _send(connection: Any, count: int) -> None:
    for step in range(1, count + 1):
        connection.send({"step": step})
        connection.recv()


def _keep(job: tuple[str, int, int]) -> None:
    folder, seed, count = job
    for step in range(count):
        draft = Path(folder, f"{seed}.new")
        draft.write_bytes(trials.blob(seed, step))
        draft.rename(Path(folder, f"{seed}-{step % 2}"))


def _member(state: tuple[list[float], float]) -> list[float]:
    rates, rate = state
    for _ in range(work.INTERVAL):
        rates = [*rates, rate]
        time.sleep(trials.ITERATION_S)
    return rates
