"""A trained module acts without its algorithm, from a checkpoint."""

import pathlib
import tempfile

import gymnasium as gym
import numpy as np
import torch
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core import DEFAULT_MODULE_ID, Columns
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.core.rl_module.rl_module import RLModule

config = (
    PPOConfig()
    .environment("CartPole-v1")
    .env_runners(num_env_runners=0)
    .training(train_batch_size_per_learner=128, minibatch_size=64, num_epochs=1, lr=0.01)
    .rl_module(
        model_config=DefaultModelConfig(fcnet_hiddens=[16], fcnet_activation="relu", vf_share_layers=False)
    )
    .debugging(seed=3)
)
algo = config.build_algo()
algo.train()
folder = algo.save_to_path(tempfile.mkdtemp())
print((pathlib.Path(folder) / "learner_group" / "learner" / "rl_module" / DEFAULT_MODULE_ID).is_dir())

module = RLModule.from_checkpoint(
    pathlib.Path(folder) / "learner_group" / "learner" / "rl_module" / DEFAULT_MODULE_ID
)
observations = torch.tensor(np.linspace(-0.1, 0.1, 12).reshape(3, 4), dtype=torch.float32)
with torch.no_grad():
    mine = module.forward_inference({Columns.OBS: observations})[Columns.ACTION_DIST_INPUTS]
    algos = algo.get_module().forward_inference({Columns.OBS: observations})[Columns.ACTION_DIST_INPUTS]
print(tuple(mine.shape), torch.allclose(mine, algos))
print(module.observation_space.shape, module.action_space, module.is_stateful())
distribution = module.get_inference_action_dist_cls().from_logits(mine)
greedy = distribution.to_deterministic().sample()
print(
    torch.equal(greedy, mine.argmax(-1)),
    tuple(distribution.logp(greedy).shape),
    bool((distribution.logp(greedy) < 0).all()),
)

env = gym.make("CartPole-v1")
observation, _ = env.reset(seed=1)
done, steps = False, 0
while not done:
    with torch.no_grad():
        outputs = module.forward_inference({Columns.OBS: torch.from_numpy(observation).unsqueeze(0)})
    action = int(outputs[Columns.ACTION_DIST_INPUTS][0].argmax())
    observation, _, terminated, truncated, _ = env.step(action)
    done, steps = terminated or truncated, steps + 1
print(steps >= 8)

again = Algorithm.from_checkpoint(folder)
with torch.no_grad():
    restored = again.get_module().forward_inference({Columns.OBS: observations})[Columns.ACTION_DIST_INPUTS]
print(again.iteration, again.config.seed, torch.allclose(restored, algos))
print(again.train()["training_iteration"])
again.stop()
algo.stop()
