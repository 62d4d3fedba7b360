"""A loss of one's own on top of PPO's."""

import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner


class Penalised(PPOTorchLearner):
    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        base = super().compute_loss_for_module(
            module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )
        weights = sum(parameter.pow(2).sum() for parameter in self.module[module_id].parameters())
        penalty = config.learner_config_dict["factor"] * weights
        self.metrics.log_value((module_id, "penalty"), penalty.detach(), window=1)
        return base + penalty


ray.init(num_cpus=2, log_to_driver=False)
config = (
    PPOConfig()
    .environment("CartPole-v1")
    .env_runners(num_env_runners=0)
    .training(
        train_batch_size_per_learner=256,
        minibatch_size=64,
        num_epochs=1,
        learner_class=Penalised,
        learner_config_dict={"factor": 0.001},
    )
    .reporting(min_time_s_per_iteration=0)
)
algo = config.build_algo()
found = algo.train()["learners"]["default_policy"]
print("penalty" in found, found["penalty"] > 0, "policy_loss" in found)
print(type(algo.learner_group.get_weights()).__name__, sorted(algo.learner_group.get_weights()))
algo.stop()
