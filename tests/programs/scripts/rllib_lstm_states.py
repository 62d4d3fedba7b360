"""Shapes of a recurrent module's states and outputs, in steps and in sequences."""

import gymnasium as gym
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

config = (
    PPOConfig()
    .environment("CartPole-v1")
    .env_runners(num_env_runners=0, num_envs_per_env_runner=2)
    .training(train_batch_size_per_learner=64, minibatch_size=32, num_epochs=1)
    .rl_module(
        model_config=DefaultModelConfig(fcnet_hiddens=[8], use_lstm=True, lstm_cell_size=6, max_seq_len=5)
    )
)
algo = config.build_algo()
module = algo.get_module()
initial = module.get_initial_state()
print(module.is_stateful(), sorted(initial), [tuple(initial[key].shape) for key in sorted(initial)])
state = {key: torch.zeros(3, *value.shape) for key, value in initial.items()}
with torch.no_grad():
    sequence = torch.randn(3, 5, 4)
    whole = module.forward_inference({Columns.OBS: sequence, Columns.STATE_IN: state})
    print(tuple(whole[Columns.ACTION_DIST_INPUTS].shape))
    print({key: tuple(value.shape) for key, value in sorted(whole[Columns.STATE_OUT].items())})
    logits = []
    for step in range(5):
        out = module.forward_inference({Columns.OBS: sequence[:, step : step + 1], Columns.STATE_IN: state})
        state = out[Columns.STATE_OUT]
        logits.append(out[Columns.ACTION_DIST_INPUTS])
    print(torch.allclose(torch.cat(logits, 1), whole[Columns.ACTION_DIST_INPUTS], atol=1e-5))
    print(all(torch.allclose(state[key], whole[Columns.STATE_OUT][key], atol=1e-5) for key in state))
result = algo.train()
print(
    result["env_runners"]["num_env_steps_sampled"] >= 64, "total_loss" in result["learners"]["default_policy"]
)
for episode in algo.env_runner.sample(num_timesteps=20):
    states = episode.get_extra_model_outputs(Columns.STATE_OUT)
    print(sorted(states), states["h"].shape[1:], len(states["h"]) == len(episode))
    break
algo.stop()
