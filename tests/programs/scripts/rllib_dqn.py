"""DQN and SAC: an iteration, its results, the replay buffer."""

import ray
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.sac import SACConfig

ray.init(num_cpus=2, log_to_driver=False)
config = (
    DQNConfig()
    .environment("CartPole-v1")
    .env_runners(num_env_runners=0, rollout_fragment_length=4)
    .training(
        lr=1e-3,
        train_batch_size_per_learner=32,
        num_steps_sampled_before_learning_starts=100,
        replay_buffer_config={
            "type": "PrioritizedEpisodeReplayBuffer",
            "capacity": 1000,
            "alpha": 0.5,
            "beta": 0.4,
        },
    )
    .reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=200)
    .debugging(seed=1)
)
algo = config.build_algo()
result = algo.train()
print(result["env_runners"]["num_env_steps_sampled_lifetime"] >= 200)
learned = result["learners"]["default_policy"]
print([key for key in ("qf_loss", "qf_mean", "td_error_mean", "total_loss") if key not in learned])
buffer = algo.local_replay_buffer
print(type(buffer).__name__, buffer.get_num_timesteps() >= 200, buffer.capacity)
algo.stop()

config = (
    SACConfig()
    .environment("Pendulum-v1")
    .env_runners(num_env_runners=0, rollout_fragment_length=1)
    .training(num_steps_sampled_before_learning_starts=64, train_batch_size_per_learner=32)
    .reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=80)
)
algo = config.build_algo()
learned = algo.train()["learners"]["default_policy"]
print(
    [
        key
        for key in (
            "policy_loss",
            "qf_loss",
            "qf_twin_loss",
            "alpha_loss",
            "alpha_value",
            "target_entropy",
            "td_error_mean",
        )
        if key not in learned
    ]
)
algo.stop()
