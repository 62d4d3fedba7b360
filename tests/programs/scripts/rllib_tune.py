"""An algorithm as a trial."""

import contextlib
import io
import tempfile

import ray
from ray import tune
from ray.rllib.algorithms.ppo import PPOConfig

ray.init(num_cpus=2, log_to_driver=False)
config = (
    PPOConfig()
    .environment("CartPole-v1")
    .env_runners(num_env_runners=0)
    .training(
        train_batch_size_per_learner=256, minibatch_size=64, num_epochs=1, lr=tune.grid_search([1e-3, 1e-4])
    )
    .reporting(min_time_s_per_iteration=0)
)
with contextlib.redirect_stdout(io.StringIO()):  # a table
    results = tune.Tuner(
        "PPO",
        param_space=config,
        run_config=tune.RunConfig(
            name="ppo",
            storage_path=tempfile.mkdtemp(),
            stop={"training_iteration": 2},
            verbose=0,
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=True),
        ),
    ).fit()
print(len(results), results.num_errors)
for result in sorted(results, key=lambda one: one.config["lr"]):
    print(
        result.config["lr"],
        result.metrics["training_iteration"],
        result.metrics["env_runners"]["episode_return_mean"] > 5,
    )
    print(result.checkpoint is not None)
