"""What rllib_curves.py trains, by either side. Torch has one thread."""

from __future__ import annotations

import importlib
import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

OURS, SB3 = "runtime", "sb3"
WINDOW = 20
ATARI = {"frameskip": 1, "repeat_action_probability": 0.0}
Curve = list[tuple[int, float]]


@dataclass(frozen=True)
class Task:
    """One environment with one algorithm.

    Args:
        algorithm: its name, the same on both sides.
        env: gymnasium's.
        steps: env steps of a training.
        ours, theirs: hyperparameters of `training`, and of the model.
        envs: environments at once.
        hiddens, activation: of the nets.
        fragment: our steps of an iteration of an algorithm with replay, for each environment.
        agents: above 1, that many agents, each in its own copy of the environment, with a policy each.
        seeds: at most so many; 0: as many as are asked for.
        is_atari: its observations are four images, which convolutions read.
    """

    algorithm: str
    env: str
    steps: int
    ours: Mapping[str, Any]
    theirs: Mapping[str, Any]
    envs: int = 8
    hiddens: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    fragment: int | None = None
    agents: int = 1
    seeds: int = 0
    is_atari: bool = False


def _ppo(env: str, steps: int, length: int, lr: float = 1e-3, **more: Any) -> Task:
    """The same PPO on both sides: `length` steps of 8 environments for an update."""
    gamma, lambda_, clip = more.pop("gamma", 0.99), more.pop("lambda_", 0.95), more.pop("clip", 0.2)
    entropy, epochs, batch = more.pop("entropy", 0.0), more.pop("epochs", 10), more.pop("batch", 256)
    ours = {
        "lr": lr,
        "gamma": gamma,
        "lambda_": lambda_,
        "clip_param": clip,
        "vf_loss_coeff": 0.5,
        "vf_clip_param": float("inf"),
        "entropy_coeff": entropy,
        "use_kl_loss": False,
        "grad_clip": 0.5,
        "grad_clip_by": "global_norm",
        "train_batch_size_per_learner": 8 * length,
        "minibatch_size": batch,
        "num_epochs": epochs,
    }
    theirs = {
        "learning_rate": lr,
        "gamma": gamma,
        "gae_lambda": lambda_,
        "clip_range": clip,
        "vf_coef": 0.5,
        "ent_coef": entropy,
        "max_grad_norm": 0.5,
        "n_steps": length,
        "batch_size": batch,
        "n_epochs": epochs,
    }
    return Task("PPO", env, steps, ours, theirs, **more)


TASKS: dict[str, Task] = {
    "CartPole, PPO": _ppo("CartPole-v1", 100_000, 128),
    "Acrobot, PPO": _ppo("Acrobot-v1", 100_000, 256),
    "LunarLander, PPO": _ppo(
        "LunarLander-v3", 200_000, 1024, 3e-4, gamma=0.999, lambda_=0.98, entropy=0.01, epochs=4, batch=64
    ),
    "Pendulum, SAC": Task(
        "SAC",
        "Pendulum-v1",
        6_000,
        {
            "actor_lr": 1e-3,
            "critic_lr": 1e-3,
            "alpha_lr": 1e-3,
            "lr": None,
            "gamma": 0.98,
            "tau": 0.005,
            "n_step": 1,
            "train_batch_size_per_learner": 128,
            "num_steps_sampled_before_learning_starts": 200,
            "target_network_update_freq": 1,
            "replay_buffer_config": {"type": "EpisodeReplayBuffer", "capacity": 50_000},
        },
        {
            "learning_rate": 1e-3,
            "gamma": 0.98,
            "tau": 0.005,
            "batch_size": 128,
            "learning_starts": 200,
            "train_freq": 1,
            "gradient_steps": 1,
            "buffer_size": 50_000,
        },
        envs=1,
        activation="relu",
        fragment=1,
    ),
    "CartPole, DQN": Task(
        "DQN",
        "CartPole-v1",
        30_000,
        {
            "lr": 1e-3,
            "gamma": 0.99,
            "train_batch_size_per_learner": 64,
            "num_steps_sampled_before_learning_starts": 1000,
            "target_network_update_freq": 500,
            # They act at random until they learn, and only then by their schedule.
            "epsilon": [(0, 1.0), (1000, 1.0), (1001, 1 - 0.95 * 1001 / 5000), (5000, 0.05)],
            "grad_clip": 10.0,  # as theirs is by default
            "double_q": False,
            "dueling": False,
            "n_step": 1,
            "replay_buffer_config": {"type": "EpisodeReplayBuffer", "capacity": 50_000},
        },
        {
            "learning_rate": 1e-3,
            "gamma": 0.99,
            "batch_size": 64,
            "learning_starts": 1000,
            "train_freq": 4,
            "gradient_steps": 1,
            "target_update_interval": 500,
            "buffer_size": 50_000,
            "exploration_fraction": 5000 / 30_000,
            "exploration_final_eps": 0.05,
        },
        envs=1,
        fragment=4,
    ),
    "two agents' CartPole, PPO": _ppo("CartPole-v1", 100_000, 128, agents=2),
    "Boxing (Atari), PPO": _ppo(
        "ALE/Boxing-v5",
        20_000,
        128,
        5e-4,
        clip=0.1,
        entropy=0.01,
        epochs=4,
        hiddens=(512,),
        activation="relu",
        seeds=2,
        is_atari=True,
    ),
}


def returns_of(side: str, task: Task, seed: int) -> Curve:
    """A training of one side: (env steps, mean return of the last episodes)."""
    import torch

    torch.set_num_threads(1)
    return _ours(task, seed) if side == OURS else _theirs(task, seed)


def _ours(task: Task, seed: int) -> Curve:
    algorithms = importlib.import_module(f"runtime.rllib.algorithms.{task.algorithm.lower()}")
    config = getattr(algorithms, f"{task.algorithm}Config")()
    if task.agents > 1:
        config.environment(_several(task.env, task.agents)).multi_agent(
            policies={f"p{i}" for i in range(task.agents)},
            policy_mapping_fn=lambda agent, *args, **kwargs: f"p{agent}",
        )
    elif task.is_atari:
        config.environment(_images, env_config={"game": task.env})
    else:
        config.environment(task.env)
    runners: dict[str, Any] = {"num_env_runners": 0, "num_envs_per_env_runner": task.envs}
    if task.fragment:
        runners["rollout_fragment_length"] = task.fragment
    config.env_runners(**runners).training(**task.ours).debugging(seed=seed)
    model: dict[str, Any] = {
        "fcnet_hiddens": list(task.hiddens),
        "fcnet_activation": task.activation,
        "vf_share_layers": False,
    }
    if task.is_atari:
        model = {
            "conv_filters": [[32, 8, 4], [64, 4, 2], [64, 3, 1]],
            "conv_activation": "relu",
            "head_fcnet_hiddens": list(task.hiddens),
            "vf_share_layers": True,
        }
    if task.algorithm == "PPO":
        from runtime.rllib.core.rl_module.rl_module import RLModuleSpec

        config.rl_module(rl_module_spec=RLModuleSpec(module_class=_orthogonal(), model_config=model))
    else:
        config.rl_module(model_config=model)
    least = 0 if task.algorithm == "PPO" else task.steps // 30
    config.reporting(
        metrics_num_episodes_for_smoothing=WINDOW,
        min_time_s_per_iteration=0,
        min_sample_timesteps_per_iteration=least,
    )
    algorithm = config.build_algo()
    curve: Curve = []
    steps = 0
    while steps < task.steps:
        found = algorithm.train()["env_runners"]
        steps = int(found["num_env_steps_sampled_lifetime"])
        if not math.isnan(
            found.get("episode_return_mean", math.nan)
        ):  # some episode has ended in this iteration
            # Several agents balance a pole each: the mean of one.
            curve.append((steps, found["episode_return_mean"] / task.agents))
    algorithm.stop()
    return curve


def _theirs(task: Task, seed: int) -> Curve:
    """Of several agents with a policy each: as many models on their own, which is the same problem."""
    if task.agents == 1:
        return _model(task, seed)
    curves = [_model(task, seed * 100 + agent) for agent in range(task.agents)]
    return [
        (points[0][0], statistics.mean(value for _, value in points)) for points in zip(*curves, strict=False)
    ]


def _model(task: Task, seed: int) -> Curve:
    import stable_baselines3
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env

    if task.is_atari:
        from stable_baselines3.common.env_util import make_atari_env
        from stable_baselines3.common.vec_env import VecFrameStack

        register_atari()
        env: Any = VecFrameStack(make_atari_env(task.env, task.envs, seed=seed, env_kwargs=ATARI), 4)
        policy, kwargs = "CnnPolicy", {}
    else:
        env = make_vec_env(task.env, task.envs, seed=seed)
        policy, kwargs = (
            "MlpPolicy",
            {"net_arch": list(task.hiddens), "activation_fn": _activation(task.activation)},
        )
    model = getattr(stable_baselines3, task.algorithm)(
        policy,
        env,
        seed=seed,
        device="cpu",
        stats_window_size=WINDOW,
        policy_kwargs=kwargs,
        **task.theirs,
    )
    curve: Curve = []

    class Watch(BaseCallback):  # type: ignore[misc,name-defined]
        """Notes the mean return about two hundred times."""

        def _on_step(self) -> bool:
            due = not curve or self.num_timesteps - curve[-1][0] >= task.steps / 200
            if due and self.model.ep_info_buffer:
                returns = [info["r"] for info in self.model.ep_info_buffer]
                curve.append((self.num_timesteps, statistics.mean(returns)))
            return True

    model.learn(task.steps, callback=Watch())
    return curve


def _orthogonal() -> type[Any]:
    """PPO's module with the initial weights that Stable-Baselines3 has: orthogonal, small for the policy's outputs."""
    import torch

    from runtime.rllib.algorithms.ppo.torch.default_ppo_torch_rl_module import DefaultPPOTorchRLModule

    class Orthogonal(DefaultPPOTorchRLModule):
        def setup(self) -> None:
            super().setup()
            outputs = {0.01: self.pi, 1.0: self.vf}
            last = {[*head.modules()][-1]: gain for gain, head in outputs.items()}
            for layer in self.modules():
                if isinstance(layer, torch.nn.Linear | torch.nn.Conv2d):
                    torch.nn.init.orthogonal_(layer.weight, last.get(layer, 2**0.5))
                    torch.nn.init.zeros_(layer.bias)

    return Orthogonal


def _activation(name: str) -> Callable[..., Any]:
    import torch

    return {"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU}[name]


def register_atari() -> None:
    """Has gymnasium know Atari's games."""
    import ale_py
    import gymnasium

    gymnasium.register_envs(ale_py)


def _images(config: Any) -> Any:
    """An Atari game with the usual wrappers: each action four times, four grey images of 84 x 84."""
    import gymnasium

    from runtime.rllib.env.wrappers.atari_wrappers import wrap_atari_for_new_api_stack

    register_atari()
    return wrap_atari_for_new_api_stack(gymnasium.make(config["game"], **ATARI), dim=84, framestack=4)


def _several(env_id: str, count: int) -> type[Any]:
    """An environment whose agents, numbers as text, each act in a copy of their own. An episode ends with all."""
    from runtime.rllib.env.multi_agent_env import MultiAgentEnv

    class Several(MultiAgentEnv):
        def __init__(self, config: Any = None) -> None:
            import gymnasium

            super().__init__()
            self.possible_agents = self.agents = [str(i) for i in range(count)]
            self.envs = {agent: gymnasium.make(env_id) for agent in self.agents}
            self.observation_spaces = {agent: env.observation_space for agent, env in self.envs.items()}
            self.action_spaces = {agent: env.action_space for agent, env in self.envs.items()}
            self.done: set[str] = set()

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            self.done = set()
            seeds = {agent: None if seed is None else seed + i for i, agent in enumerate(self.agents)}
            return {agent: env.reset(seed=seeds[agent])[0] for agent, env in self.envs.items()}, {}

        def step(self, actions: dict[str, Any]) -> Any:
            obs, rewards, ends, cuts = {}, {}, {}, {}
            for agent, action in actions.items():
                obs[agent], rewards[agent], ends[agent], cuts[agent], _ = self.envs[agent].step(action)
                if ends[agent] or cuts[agent]:
                    self.done.add(agent)
            ends["__all__"] = len(self.done) == count
            cuts["__all__"] = False
            return obs, rewards, ends, cuts, {}

    return Several
