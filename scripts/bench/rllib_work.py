"""What rllib.py trains, through RLlib's API of any module; and how a policy is judged."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any

RETURN = "return"
GOAL, WINDOW = 450, 20
CARTPOLE, PENDULUM = "CartPole-v1", "Pendulum-v1"


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How much is done of it, as a share of the benchmark's own."""

    scale: float = 1.0

    def steps(self, whole: int) -> int:
        """Of env steps; never less than two fragments."""
        return max(int(whole * self.scale), 2048)

    @property
    def seconds(self) -> float:
        """How long a training with runners is watched."""
        return max(8 * self.scale, 0.5)

    @property
    def cap_s(self) -> float:
        """When a training that has not reached its goal ends."""
        return max(75 * self.scale, 2.0)

    @property
    def seeds(self) -> tuple[int, ...]:
        return (1, 2) if self.scale >= 1 else (1,)


def play(policy: Callable[[Any], Any], env_id: str, episodes: int = 10) -> float:
    """The mean return of a policy, observations -> actions, over independent episodes."""
    import gymnasium
    import numpy as np

    envs = [gymnasium.make(env_id) for _ in range(episodes)]
    obs = np.stack([env.reset(seed=100 + i)[0] for i, env in enumerate(envs)])
    total, alive = np.zeros(episodes), np.ones(episodes, bool)
    while alive.any():
        actions = policy(obs)
        for i in np.flatnonzero(alive):
            obs[i], reward, terminated, truncated, _ = envs[i].step(actions[i])
            total[i] += reward
            alive[i] = not (terminated or truncated)
    return float(total.mean())


class Trainer:
    """One algorithm, built.

    Args:
        config: RLlib's.
        continuous: whether actions are torques of Pendulum.
    """

    def __init__(self, config: Any, continuous: bool = False) -> None:
        self.algorithm = config.build_algo()
        self._continuous = continuous
        self.steps = 0

    def iterate(self) -> float:
        """One iteration; the mean return of the last episodes."""
        result = self.algorithm.train().get("env_runners", {})
        self.steps = int(result.get("num_env_steps_sampled_lifetime", self.steps))
        return float(result.get("episode_return_mean", float("nan")))

    def greedy(self, obs: Any) -> Any:
        """The best actions."""
        import torch

        with torch.no_grad():
            out = self.algorithm.get_module().forward_inference({"obs": torch.from_numpy(obs).float()})
        if "action_dist_inputs" not in out:  # RLlib's DQN gives the best actions themselves
            return out["actions"].numpy()
        inputs = out["action_dist_inputs"]
        if self._continuous:  # a squashed normal: means, then log deviations; the torque goes to 2
            return 2 * inputs.chunk(2, -1)[0].tanh().numpy()
        return inputs.argmax(-1).numpy()

    def save(self, path: str) -> None:
        self.algorithm.save_to_path(path)

    def restore(self, path: str) -> None:
        type(self.algorithm).from_checkpoint(path).stop()

    def stop(self) -> None:
        self.algorithm.stop()


class Trainers:
    """The workloads' configurations.

    Args:
        module: has RLlib's API below `.rllib`.
    """

    def __init__(self, module: str) -> None:
        self.module = module

    def config(
        self, name: str, env: Any, seed: int, hiddens: tuple[int, ...] = (64, 64), **runners: Any
    ) -> Any:
        """What all have in common."""
        algorithm = importlib.import_module(f"{self.module}.rllib.algorithms.{name.lower()}")
        runners = {"num_env_runners": 0, "num_envs_per_env_runner": 1, **runners}
        return (
            getattr(algorithm, f"{name}Config")()
            .environment(env)
            .env_runners(**runners)
            .rl_module(model_config={"fcnet_hiddens": list(hiddens), "fcnet_activation": "tanh"})
            .reporting(metrics_num_episodes_for_smoothing=WINDOW, min_time_s_per_iteration=0)
            .debugging(seed=seed, log_level="ERROR")
        )

    def ppo_config(self, seed: int = 1, env: Any = CARTPOLE, envs: int = 8, **more: Any) -> Any:
        return self.config("PPO", env, seed, num_envs_per_env_runner=envs, **more).training(
            lr=1e-3,
            gamma=0.99,
            lambda_=0.95,
            clip_param=0.2,
            vf_loss_coeff=0.5,
            vf_clip_param=1e9,
            entropy_coeff=0.0,
            use_kl_loss=False,
            grad_clip=0.5,
            grad_clip_by="global_norm",
            train_batch_size_per_learner=1024,
            minibatch_size=256,
            num_epochs=10,
        )

    def ppo(self, seed: int) -> Trainer:
        return Trainer(self.ppo_config(seed))

    def sampler(self, envs: int) -> Callable[[], int]:
        """Samples 128 steps of each environment; the number of env steps."""
        runners = importlib.import_module(f"{self.module}.rllib.env.single_agent_env_runner")
        runner = runners.SingleAgentEnvRunner(config=self.ppo_config(envs=envs))

        def sample() -> int:
            episodes = runner.sample(num_timesteps=128 * envs, random_actions=False)
            if not all(len(episode.get_observations()) == len(episode) + 1 for episode in episodes):
                raise AssertionError("an episode lacks observations")
            return sum(len(episode) for episode in episodes)

        return sample

    def dqn(self, seed: int) -> Trainer:
        config = self.config("DQN", CARTPOLE, seed, rollout_fragment_length=4).training(
            lr=1e-3,
            gamma=0.99,
            train_batch_size_per_learner=64,
            num_steps_sampled_before_learning_starts=1000,
            target_network_update_freq=500,
            # Stable-Baselines3 acts at random until it learns, and only then by its schedule.
            epsilon=[(0, 1.0), (1000, 1.0), (1001, 1 - 0.95 * 1001 / 3000), (3000, 0.05)],
            double_q=False,
            dueling=False,
            n_step=1,
            grad_clip=10.0,
            replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": 50_000},
        )
        return Trainer(config.reporting(min_sample_timesteps_per_iteration=1000))

    def sac(self, seed: int) -> Trainer:
        config = self.config("SAC", PENDULUM, seed, rollout_fragment_length=1).training(
            actor_lr=1e-3,
            critic_lr=1e-3,
            alpha_lr=1e-3,
            lr=None,
            gamma=0.98,
            tau=0.005,
            n_step=1,
            train_batch_size_per_learner=128,
            num_steps_sampled_before_learning_starts=200,
            target_network_update_freq=1,
            replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": 50_000},
        )
        return Trainer(config.reporting(min_sample_timesteps_per_iteration=500), continuous=True)

    def two_policies(self, seed: int) -> Trainer:
        """A policy for each of two agents."""
        config = self.ppo_config(seed, self.two_cartpoles()).multi_agent(
            policies={"p0", "p1"}, policy_mapping_fn=lambda agent, *args, **kwargs: "p" + agent[-1]
        )
        return Trainer(config)

    def two_cartpoles(self) -> type[Any]:
        """An environment of two agents that each balance a pole of their own."""
        base = importlib.import_module(f"{self.module}.rllib.env.multi_agent_env").MultiAgentEnv

        class TwoCartPoles(base):
            def __init__(self, config: Any = None) -> None:
                import gymnasium

                super().__init__()
                self.possible_agents = self.agents = ["a0", "a1"]
                self.envs = {agent: gymnasium.make(CARTPOLE) for agent in self.agents}
                self.observation_spaces = {agent: env.observation_space for agent, env in self.envs.items()}
                self.action_spaces = {agent: env.action_space for agent, env in self.envs.items()}

            def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
                self.done: set[str] = set()
                return {agent: env.reset(seed=seed)[0] for agent, env in self.envs.items()}, {}

            def step(self, actions: dict[str, Any]) -> Any:
                obs, rewards, ends, cuts = {}, {}, {}, {}
                for agent, action in actions.items():
                    obs[agent], rewards[agent], ends[agent], cuts[agent], _ = self.envs[agent].step(action)
                    if ends[agent] or cuts[agent]:
                        self.done.add(agent)
                ends["__all__"] = len(self.done) == 2
                cuts["__all__"] = False
                return obs, rewards, ends, cuts, {}

        return TwoCartPoles

    def appo(self) -> Trainer:
        config = self.config("APPO", CARTPOLE, 1, num_env_runners=2, num_envs_per_env_runner=4).training(
            lr=1e-3, train_batch_size_per_learner=512
        )
        return Trainer(config.learners(num_learners=0).reporting(min_time_s_per_iteration=1))
