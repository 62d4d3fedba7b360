"""A MultiRLModule calls its modules itself: two policies share an encoder and one optimizer."""

import gymnasium as gym
import numpy as np
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import ValueFunctionAPI
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModule, MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.rllib.env.multi_agent_env import MultiAgentEnv


class Two(MultiAgentEnv):
    def __init__(self, config=None):
        super().__init__()
        self.agents = self.possible_agents = ["p0", "p1"]
        self.observation_spaces = {a: gym.spaces.Box(-1.0, 1.0, (2,)) for a in self.agents}
        self.action_spaces = {a: gym.spaces.Discrete(2) for a in self.agents}
        self.steps = 0

    def _observe(self):
        return {agent: np.full(2, 0.1 * self.steps, np.float32) for agent in self.agents}

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return self._observe(), {}

    def step(self, actions):
        self.steps += 1
        done = self.steps == 8
        return self._observe(), dict.fromkeys(actions, 1.0), {"__all__": done}, {"__all__": False}, {}


class Encoder(TorchRLModule):
    def setup(self):
        self.net = torch.nn.Linear(2, 4)

    def _forward(self, batch, **kwargs):
        return {"embedding": torch.relu(self.net(batch[Columns.OBS]))}


class Policy(TorchRLModule, ValueFunctionAPI):
    def setup(self):
        self.pi = torch.nn.Linear(4, 2)
        self.vf = torch.nn.Linear(2, 1)

    def _forward(self, batch, **kwargs):
        return {Columns.ACTION_DIST_INPUTS: self.pi(batch["embedding"])}

    def compute_values(self, batch, embeddings=None):
        return self.vf(batch[Columns.OBS]).squeeze(-1)


class Shared(MultiRLModule):
    def _together(self, method, batch, kwargs):
        out = {}
        for module_id, part in batch.items():
            embedded = {**part, **self._rl_modules["encoder"]._forward(part)}
            out[module_id] = getattr(self._rl_modules[module_id], method)(embedded, **kwargs)
        return out

    def _forward_inference(self, batch, **kwargs):
        return self._together("forward_inference", batch, kwargs)

    def _forward_exploration(self, batch, **kwargs):
        return self._together("forward_exploration", batch, kwargs)

    def _forward_train(self, batch, **kwargs):
        return self._together("forward_train", batch, kwargs)


class Doubled(ConnectorV2):
    """Doubles the rewards before anything else sees the episodes."""

    def __call__(self, *, rl_module, batch, episodes, **kwargs):
        for episode in self.single_agent_episode_iterator(episodes, agents_that_stepped_only=False):
            rewards = np.asarray(episode.get_rewards())
            episode.set_rewards(new_data=rewards * 2.0, at_indices=list(range(len(rewards))))
        return batch


class Learner(PPOTorchLearner):
    def build(self):
        super().build()
        self._learner_connector.prepend(Doubled())
        print("first piece:", type(self._learner_connector.connectors[0]).__name__)

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        if not hasattr(self, "seen"):
            self.seen = {}
        mask = batch.get("loss_mask")
        targets = batch["value_targets"] if mask is None else batch["value_targets"][mask]
        self.seen.setdefault(module_id, float(targets.max()) > 4.0)
        return super().compute_loss_for_module(
            module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )


config = (
    PPOConfig()
    .environment(Two)
    .env_runners(num_env_runners=0)
    .training(
        train_batch_size_per_learner=64, minibatch_size=64, num_epochs=1, learner_class=Learner, gamma=0.99
    )
    .multi_agent(policies={"p0", "p1"}, policy_mapping_fn=lambda agent_id, *args, **kwargs: agent_id)
    .rl_module(
        rl_module_spec=MultiRLModuleSpec(
            multi_rl_module_class=Shared,
            rl_module_specs={
                "encoder": RLModuleSpec(
                    module_class=Encoder,
                    observation_space=gym.spaces.Box(-1.0, 1.0, (2,)),
                    action_space=gym.spaces.Discrete(2),
                ),
                "p0": RLModuleSpec(module_class=Policy),
                "p1": RLModuleSpec(module_class=Policy),
            },
        )
    )
)
algo = config.build_algo()
modules = algo.learner_group._learner.module
print(sorted(modules.keys()), type(modules).__name__)
result = algo.train()
print(result["env_runners"]["episode_return_mean"], result["env_runners"]["episode_len_mean"])
print(sorted(name for name in result["learners"] if name.startswith("p")))
print(dict(sorted(algo.learner_group._learner.seen.items())))
algo.stop()
