"""The workloads of rllib.py through what a user would take instead of RLlib: Stable-Baselines3 with the same
hyperparameters, and PPO in one plain loop."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, Protocol

from data_measuring import Timing
from rllib_loop import LoopTrainer
from rllib_work import CARTPOLE, GOAL, PENDULUM, WINDOW, Sizes, play

SB3, LOOP = "Stable-Baselines3", "a plain loop"


class Trains(Protocol):
    """What is trained step by step."""

    steps: int

    def iterate(self) -> float: ...

    def greedy(self, obs: Any) -> Any: ...


class Baseline:
    """A model of Stable-Baselines3.

    Args:
        name: of its class.
        env_id, envs, seed: of its environments.
        chunk: env steps of an iteration.
        settings: of the model.
    """

    def __init__(self, name: str, env_id: str, seed: int, chunk: int, envs: int = 1, **settings: Any) -> None:
        import stable_baselines3
        import torch
        from stable_baselines3.common.env_util import make_vec_env

        self.model = getattr(stable_baselines3, name)(
            "MlpPolicy",
            make_vec_env(env_id, envs, seed=seed),
            seed=seed,
            device="cpu",
            stats_window_size=WINDOW,
            policy_kwargs={"net_arch": [64, 64], "activation_fn": torch.nn.Tanh},
            **settings,
        )
        self._chunk = chunk
        self.steps = 0

    def iterate(self) -> float:
        self.model.learn(self._chunk, reset_num_timesteps=self.steps == 0)
        self.steps = self.model.num_timesteps
        returns = [info["r"] for info in self.model.ep_info_buffer]
        return statistics.mean(returns) if returns else float("nan")

    def greedy(self, obs: Any) -> Any:
        return self.model.predict(obs, deterministic=True)[0]


def ppo(seed: int, envs: int = 8) -> Baseline:
    return Baseline(
        "PPO",
        CARTPOLE,
        seed,
        128 * envs,
        envs,
        n_steps=128,
        batch_size=256,
        n_epochs=10,
        learning_rate=1e-3,
        gamma=0.99,
        gae_lambda=0.95,
        clip_range=0.2,
        vf_coef=0.5,
        ent_coef=0.0,
        max_grad_norm=0.5,
    )


def dqn(seed: int) -> Baseline:
    baseline = Baseline(
        "DQN",
        CARTPOLE,
        seed,
        1000,
        learning_rate=1e-3,
        gamma=0.99,
        batch_size=64,
        learning_starts=1000,
        train_freq=4,
        gradient_steps=1,
        target_update_interval=500,
        buffer_size=50_000,
    )
    model = baseline.model
    model.exploration_schedule = lambda _: max(0.05, 1 - 0.95 * model.num_timesteps / 3000)
    return baseline


def sac(seed: int) -> Baseline:
    return Baseline(
        "SAC",
        PENDULUM,
        seed,
        500,
        learning_rate=1e-3,
        gamma=0.98,
        tau=0.005,
        batch_size=128,
        learning_starts=200,
        train_freq=1,
        gradient_steps=1,
        buffer_size=50_000,
    )


class Anchors:
    """Of what is installed here.

    Args:
        timing: of them.
        sizes: of the workloads.
    """

    def __init__(self, timing: Timing, sizes: Sizes) -> None:
        self.t = timing
        self.m = timing.m
        self._sizes = sizes

    def run(self) -> None:
        import torch

        torch.set_num_threads(1)
        for tool, make in ((LOOP, LoopTrainer), (SB3, ppo)):
            self.t.together(
                [
                    "PPO: training",
                    "PPO: until a mean return of 450",
                    "PPO: env steps until then",
                    "PPO: greedy return",
                ],
                lambda tool=tool, make=make: self.ppo(tool, make),  # type: ignore[misc]
                tool,
            )
        for envs in (8, 64):
            name = f"sampling, {envs} environments"
            self.t.take(name, lambda envs=envs: self.loop_sampling(envs), LOOP)  # type: ignore[misc]
        self.off_policy("DQN", dqn, 10_000, CARTPOLE)
        self.off_policy("SAC", sac, 4_000, PENDULUM)
        self.t.take("two policies: training", self.two_policies, LOOP)

    def ppo(self, tool: str, make: Callable[[int], Trains]) -> None:
        seconds, steps, greedy = [], [], []
        for seed in self._sizes.seeds:
            start = time.perf_counter()
            trainer = make(seed)
            mean = trainer.iterate()
            first, first_steps = time.perf_counter(), trainer.steps
            while not mean >= GOAL and time.perf_counter() - start < self._sizes.cap_s:
                mean = trainer.iterate()
            now = time.perf_counter()
            seconds.append(now - start)
            steps.append(trainer.steps)
            greedy.append(play(trainer.greedy, CARTPOLE))
            if seed == self._sizes.seeds[0]:
                self.m.note("PPO: training", (trainer.steps - first_steps) / (now - first), tool)
        self.m.note("PPO: until a mean return of 450", statistics.mean(seconds), tool)
        self.m.note("PPO: env steps until then", statistics.mean(steps), tool)
        self.m.note("PPO: greedy return", statistics.mean(greedy), tool)

    def loop_sampling(self, envs: int) -> float:
        trainer = LoopTrainer(1, envs, native=envs > 8)
        return self.m.rate_of(trainer.sample, 128 * envs)

    def off_policy(self, name: str, make: Callable[[int], Baseline], whole: int, env_id: str) -> None:
        def part() -> None:
            trainer, total = make(1), self._sizes.steps(whole)
            start = time.perf_counter()
            while trainer.steps < total:
                trainer.iterate()
            self.m.note(f"{name}: training", trainer.steps / (time.perf_counter() - start), SB3)
            self.m.note(f"{name}: greedy return", play(trainer.greedy, env_id), SB3)

        self.t.together([f"{name}: training", f"{name}: greedy return"], part, SB3)

    def two_policies(self) -> float:
        """Two agents with their own environments and nets: an env step is one of both."""
        pair = [LoopTrainer(1), LoopTrainer(2)]
        for trainer in pair:
            trainer.iterate()
        start, first = time.perf_counter(), pair[0].steps
        while pair[0].steps - first < self._sizes.steps(5_120):
            for trainer in pair:
                trainer.iterate()
        return (pair[0].steps - first) / (time.perf_counter() - start)
