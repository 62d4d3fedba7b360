"""The workloads of rllib.py through RLlib's API."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from data_measuring import Timing, require
from rllib_work import CARTPOLE, GOAL, PENDULUM, Sizes, Trainer, Trainers, play

FRESH = """
import sys, time
sys.path[:0] = sys.argv[2:4]
start = time.perf_counter()
import importlib
importlib.import_module(sys.argv[1] + ".rllib")
imported = time.perf_counter() - start
from rllib_work import Trainers
start = time.perf_counter()
trainer = Trainers(sys.argv[1]).ppo(1)
print(imported, imported + time.perf_counter() - start, flush=True)
import os
os._exit(0)
"""


def memory() -> float:
    """MiB of this process and of all that it has started, shared pages by their shares (PSS)."""
    import psutil

    me = psutil.Process()
    started = me.create_time()
    seen = {process.pid: process for process in [me, *me.children(recursive=True)]}
    for process in psutil.process_iter(["name", "create_time"]):
        name = process.info["name"]
        if process.info["create_time"] >= started and name.startswith(("ray", "gcs_server", "runtime")):
            seen[process.pid] = process
    total = 0
    for process in seen.values():
        try:
            total += process.memory_full_info().pss
        except psutil.Error:
            pass
    return total / 2**20


class Workloads:
    """Of one engine.

    Args:
        timing: takes the figures.
        trainers: of that engine.
        sizes: of the workloads.
    """

    def __init__(self, timing: Timing, trainers: Trainers, sizes: Sizes) -> None:
        self.t = timing
        self.m = timing.m
        self._trainers = trainers
        self._sizes = sizes

    def run(self) -> None:
        self.t.together(["import", "import and build"], self.fresh)
        import torch  # of every engine alike, before its cluster starts

        torch.set_num_threads(1)
        self.m.init(2)
        learned = ["PPO: until a mean return of 450", "PPO: env steps until then", "PPO: greedy return"]
        of_trained = ["PPO: training", "PPO: memory", "checkpoint: save", "checkpoint: restore"]
        of_runners = ["build with 2 runners", "2 runners, PPO: training", "2 runners, PPO: memory"]
        of_kill = ["a runner killed: lost in the next iteration", "a runner killed: until both run"]
        try:
            self.t.together(learned + of_trained, self.ppo)
            for envs in (8, 64):
                name = f"sampling, {envs} environments"
                self.t.together([name], lambda name=name, envs=envs: self.sampling(name, envs))
            self.off_policy("DQN", self._trainers.dqn, 10_000, CARTPOLE)
            self.off_policy("SAC", self._trainers.sac, 4_000, PENDULUM)
            self.t.together(["two policies: training"], self.two_policies)
            self.t.together(of_runners + of_kill, self.two_runners)
            self.t.together(["weights of 10 MB to 2 runners"], self.weights)
            self.t.together(["2 runners, APPO: training"], self.appo)
        finally:
            self.m.ray.shutdown()

    def fresh(self) -> None:
        """In processes of their own."""
        here = Path(__file__).resolve()
        command = [sys.executable, "-c", FRESH, self.m.module, str(here.parent), str(here.parents[2])]
        found = []
        for _ in range(self.m.rounds):
            done = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True
            )
            found.append([float(value) for value in done.stdout.splitlines()[-1].split()])
        for name, values in zip(("import", "import and build"), zip(*found, strict=True), strict=True):
            self.m.note(name, statistics.median(values))

    def ppo(self) -> None:
        seconds, steps, greedy = [], [], []
        for seed in self._sizes.seeds:
            start = time.perf_counter()
            trainer = self._trainers.ppo(seed)
            mean = trainer.iterate()
            first, first_steps = time.perf_counter(), trainer.steps
            while not mean >= GOAL and time.perf_counter() - start < self._sizes.cap_s:
                mean = trainer.iterate()
            now = time.perf_counter()
            seconds.append(now - start)
            steps.append(trainer.steps)
            greedy.append(play(trainer.greedy, CARTPOLE))
            if seed == self._sizes.seeds[0]:
                self.m.note("PPO: training", (trainer.steps - first_steps) / (now - first))
                self.keep(trainer)
                self.m.note("PPO: memory", memory())
            trainer.stop()
        require(min(greedy) > 200 or self._sizes.scale < 1, f"trained policies play badly: {greedy}")
        self.m.note("PPO: until a mean return of 450", statistics.mean(seconds))
        self.m.note("PPO: env steps until then", statistics.mean(steps))
        self.m.note("PPO: greedy return", statistics.mean(greedy))

    def keep(self, trainer: Trainer) -> None:
        """A checkpoint, and an algorithm from it."""
        with tempfile.TemporaryDirectory() as path:
            self.m.note("checkpoint: save", seconds_of(lambda: trainer.save(path)))
            self.m.note("checkpoint: restore", seconds_of(lambda: trainer.restore(path)))

    def sampling(self, name: str, envs: int) -> None:
        sample = self._trainers.sampler(envs)
        for _ in range(2):
            sample()
        rates = []
        for _ in range(self.m.rounds):
            steps, start = 0, time.perf_counter()
            while time.perf_counter() - start < self.m.round_s:
                steps += sample()
            rates.append(steps / (time.perf_counter() - start))
        self.m.note(name, statistics.median(rates))

    def off_policy(self, name: str, make: Callable[[int], Trainer], whole: int, env_id: str) -> None:
        """Trains for a number of env steps, or until the time is over; RLlib takes long."""

        def part() -> None:
            trainer, total = make(1), self._sizes.steps(whole)
            start = time.perf_counter()
            while trainer.steps < total and time.perf_counter() - start < 100:
                trainer.iterate()
            self.m.note(f"{name}: training", trainer.steps / (time.perf_counter() - start))
            self.m.note(f"{name}: greedy return", play(trainer.greedy, env_id))
            trainer.stop()

        self.t.together([f"{name}: training", f"{name}: greedy return"], part)

    def two_policies(self) -> None:
        trainer = self._trainers.two_policies(1)

        def weights() -> list[Any]:
            modules = [trainer.algorithm.get_module(name) for name in ("p0", "p1")]
            return [next(iter(module.get_state().values())).copy() for module in modules]

        before = weights()
        trainer.iterate()
        start, first = time.perf_counter(), trainer.steps
        while trainer.steps - first < self._sizes.steps(5_120):
            trainer.iterate()
        spent = time.perf_counter() - start
        require(
            all((a != b).any() for a, b in zip(before, weights(), strict=True)), "a policy's weights stayed"
        )
        self.m.note("two policies: training", (trainer.steps - first) / spent)
        trainer.stop()

    def watched(self, name: str, trainer: Trainer) -> None:
        """The rate of a training over some seconds."""
        start, first = time.perf_counter(), trainer.steps
        while time.perf_counter() - start < self._sizes.seconds:
            trainer.iterate()
        self.m.note(name, (trainer.steps - first) / (time.perf_counter() - start))

    def two_runners(self) -> None:
        config = self._trainers.ppo_config(num_env_runners=2, envs=4)
        config = config.fault_tolerance(restart_failed_env_runners=True)
        start = time.perf_counter()
        trainer = Trainer(config)
        group = trainer.algorithm.env_runner_group
        pids = group.foreach_env_runner(lambda runner: os.getpid(), local_env_runner=False)
        require(len(set(pids)) == 2, f"runners answered from {pids}")
        self.m.note("build with 2 runners", time.perf_counter() - start)
        trainer.iterate()
        self.watched("2 runners, PPO: training", trainer)
        self.m.note("2 runners, PPO: memory", memory())
        usual = statistics.median(seconds_of(trainer.iterate) for _ in range(3))
        os.kill(pids[0], signal.SIGKILL)
        start = time.perf_counter()
        lost = seconds_of(trainer.iterate) - usual
        while group.num_healthy_remote_workers() < 2 and time.perf_counter() - start < 60:
            trainer.iterate()
        require(group.num_healthy_remote_workers() == 2, "the killed runner did not come back")
        self.m.note("a runner killed: lost in the next iteration", max(lost, 0.001))
        self.m.note("a runner killed: until both run", time.perf_counter() - start)
        trainer.stop()

    def weights(self) -> None:
        """Two layers of 1,536."""
        trainer = Trainer(self._trainers.ppo_config(num_env_runners=2, envs=1, hiddens=(1536, 1536)))
        group, learners = trainer.algorithm.env_runner_group, trainer.algorithm.learner_group

        def sync() -> None:
            group.sync_weights(from_worker_or_learner_group=learners, inference_only=True, timeout_seconds=60)

        sync()
        taken = statistics.median(seconds_of(sync) for _ in range(10))
        self.m.note("weights of 10 MB to 2 runners", 1000 * taken)
        trainer.stop()

    def appo(self) -> None:
        trainer = self._trainers.appo()
        for _ in range(3):
            trainer.iterate()
        self.watched("2 runners, APPO: training", trainer)
        trainer.stop()


def seconds_of(operation: Callable[[], Any]) -> float:
    """What it takes."""
    start = time.perf_counter()
    operation()
    return time.perf_counter() - start
