"""The chain of a configuration, its defaults, its errors."""

from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.bc import BCConfig
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.algorithms.marwil import MARWILConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.sac import SACConfig

config = (
    PPOConfig()
    .environment("CartPole-v1", env_config={"a": 1})
    .env_runners(num_env_runners=3, num_envs_per_env_runner=2, rollout_fragment_length=50)
    .training(
        lr=0.0003, gamma=0.98, lambda_=0.9, train_batch_size_per_learner=600, minibatch_size=100, num_epochs=4
    )
    .learners(num_learners=0)
    .evaluation(evaluation_interval=2, evaluation_duration=7, evaluation_num_env_runners=1)
    .debugging(seed=7)
    .reporting(min_time_s_per_iteration=0)
)
print(config.env, config.env_config["a"], config.num_env_runners, config.num_envs_per_env_runner)
print(config.lr, config.gamma, config.lambda_, config.minibatch_size, config.num_epochs, config.seed)
print(
    config.total_train_batch_size,
    config.get_rollout_fragment_length(),
    config.is_multi_agent,
    config.is_offline,
)
print(config.evaluation_interval, config.evaluation_duration, config.evaluation_duration_unit)

names = (
    "lr gamma train_batch_size_per_learner minibatch_size num_epochs num_env_runners num_envs_per_env_runner "
    "rollout_fragment_length batch_mode explore grad_clip grad_clip_by num_learners num_gpus_per_learner "
    "metrics_num_episodes_for_smoothing min_time_s_per_iteration min_sample_timesteps_per_iteration evaluation_interval "
    "evaluation_duration sample_timeout_s restart_failed_env_runners"
).split()
for kind in (PPOConfig, DQNConfig, SACConfig, IMPALAConfig, APPOConfig, BCConfig, MARWILConfig):
    one = kind()
    print(kind.__name__, {name: getattr(one, name) for name in names})

ppo = PPOConfig()
print(
    ppo.use_critic, ppo.use_gae, ppo.lambda_, ppo.use_kl_loss, ppo.kl_coeff, ppo.kl_target, ppo.vf_loss_coeff
)
print(ppo.entropy_coeff, ppo.clip_param, ppo.vf_clip_param)
dqn = DQNConfig()
print(
    dqn.double_q, dqn.dueling, dqn.n_step, dqn.epsilon, dqn.target_network_update_freq, dqn.num_atoms, dqn.tau
)
print(
    dqn.replay_buffer_config["type"],
    dqn.replay_buffer_config["capacity"],
    dqn.num_steps_sampled_before_learning_starts,
)
sac = SACConfig()
print(
    sac.twin_q,
    sac.tau,
    sac.initial_alpha,
    sac.target_entropy,
    sac.n_step,
    sac.actor_lr,
    sac.critic_lr,
    sac.alpha_lr,
)

other = config.copy()
other.training(lr=1.0)
print(config.lr, other.lr, other is config)
config.freeze()
try:
    config.training(lr=2.0)
except AttributeError as error:
    print("frozen:", type(error).__name__)
try:
    PPOConfig().training(learning_rate=1.0)
except TypeError as error:
    print("TypeError", "learning_rate" in str(error))

many = PPOConfig().multi_agent(policies={"p0", "p1"}, policy_mapping_fn=lambda agent_id, episode, **kw: "p0")
print(many.is_multi_agent, sorted(many.policies))
print(PPOConfig().update_from_dict({"lr": 0.5, "gamma": 0.7}).lr)
print(
    {
        key: value
        for key, value in PPOConfig().training(lr=0.25).to_dict().items()
        if key in ("lr", "gamma", "lambda")
    }
)
print(PPOConfig().training(lr=0.125).get("lr"), PPOConfig()["gamma"])
