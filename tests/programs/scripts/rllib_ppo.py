"""PPO learns, evaluates, keeps checkpoints and goes on from them."""

import tempfile

import ray
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.ppo import PPO, PPOConfig

ray.init(num_cpus=2, log_to_driver=False)
config = (
    PPOConfig()
    .environment("CartPole-v1")
    .env_runners(num_env_runners=0, num_envs_per_env_runner=4)
    .training(train_batch_size_per_learner=512, minibatch_size=128, num_epochs=2, lr=1e-3)
    .evaluation(evaluation_interval=2, evaluation_duration=3, evaluation_num_env_runners=0)
    .reporting(min_time_s_per_iteration=0)
    .debugging(seed=1)
)
algo = config.build_algo()
print(type(algo).__name__, algo.iteration)
result = algo.train()
print(
    result["training_iteration"],
    result["env_runners"]["num_env_steps_sampled"] >= 512,
    "evaluation" in result,
)
wanted = "episode_return_mean episode_return_min episode_return_max episode_len_mean num_episodes num_env_steps_sampled_lifetime"
print([key for key in wanted.split() if key not in result["env_runners"]])
learned = result["learners"]["default_policy"]
wanted = "policy_loss vf_loss total_loss entropy mean_kl_loss vf_explained_var curr_kl_coeff default_optimizer_learning_rate"
print([key for key in wanted.split() if key not in learned], sorted(result["learners"]))
result = algo.train()
found = result["evaluation"]["env_runners"]
print(result["training_iteration"], found["num_episodes"], found["episode_return_mean"] >= 8)
print(result["num_env_steps_sampled_lifetime"] >= 1024, result["time_total_s"] > 0)
evaluated = algo.evaluate()
print("env_runners" in evaluated, evaluated["env_runners"]["num_episodes"])
with tempfile.TemporaryDirectory() as path:
    print(algo.save_to_path(path) == path)
    before = algo.get_module().get_state()
    algo.train()
    algo.restore_from_path(path)
    after = algo.get_module().get_state()
    print(sorted(before) == sorted(after), algo.iteration)
    algo.stop()
    again = Algorithm.from_checkpoint(path)
    after = again.get_module().get_state()
    print(isinstance(again, PPO), all((before[key] == after[key]).all() for key in before), again.iteration)
    print(again.train()["training_iteration"])
    again.stop()
