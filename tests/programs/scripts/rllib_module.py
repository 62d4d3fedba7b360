"""A module of one's own: setup, forward passes, its specification, its state."""

import tempfile

import gymnasium as gym
import numpy as np
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModule, RLModuleSpec
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule


class Linear(TorchRLModule):
    def setup(self):
        size = self.model_config.get("hidden", 4)
        self.first = torch.nn.Linear(self.observation_space.shape[0], size)
        self.second = torch.nn.Linear(size, self.action_space.n)
        for layer in (self.first, self.second):
            torch.nn.init.constant_(layer.weight, 0.5)
            torch.nn.init.zeros_(layer.bias)

    def _forward(self, batch, **kwargs):
        return {Columns.ACTION_DIST_INPUTS: self.second(self.first(batch[Columns.OBS]))}


spec = RLModuleSpec(
    module_class=Linear,
    observation_space=gym.spaces.Box(-1.0, 1.0, (3,), np.float32),
    action_space=gym.spaces.Discrete(2),
    model_config={"hidden": 5},
)
module = spec.build()
print(
    type(module).__name__,
    isinstance(module, RLModule),
    isinstance(module, torch.nn.Module),
    module.is_stateful(),
)
batch = {Columns.OBS: torch.ones(2, 3)}
for forward in (module.forward_inference, module.forward_exploration, module.forward_train):
    out = forward(batch)
    print(
        sorted(out),
        out[Columns.ACTION_DIST_INPUTS].detach().tolist(),
        out[Columns.ACTION_DIST_INPUTS].requires_grad,
    )
state = module.get_state()
print(sorted(state), {type(value).__name__ for value in state.values()}, module.get_initial_state())
state["first.bias"] = np.ones(5, np.float32)
module.set_state(state)
print(module.forward_inference(batch)[Columns.ACTION_DIST_INPUTS].tolist())
with tempfile.TemporaryDirectory() as path:
    module.save_to_path(path)
    again = RLModule.from_checkpoint(path)
    print(type(again).__name__, again.forward_inference(batch)[Columns.ACTION_DIST_INPUTS].tolist())

dist = module.get_inference_action_dist_cls().from_logits(torch.tensor([[0.0, 3.0], [2.0, 1.0]]))
print(
    dist.to_deterministic().sample().tolist(), [round(x, 4) for x in dist.logp(torch.tensor([1, 0])).tolist()]
)
print([round(x, 4) for x in dist.entropy().tolist()])

multi = MultiRLModuleSpec(rl_module_specs={"a": spec, "b": spec}).build()
print(sorted(multi.keys()), type(multi["a"]).__name__, len(multi))
out = multi.forward_inference({"a": batch, "b": batch})
print(sorted(out), out["b"][Columns.ACTION_DIST_INPUTS].shape)
multi.remove_module("a")
print(sorted(multi.keys()))
