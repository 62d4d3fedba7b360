"""BC: the loss against a plain implementation; recording, training from the files and evaluating, end to end."""

import gymnasium as gym
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from runtime.rllib.algorithms.bc import BCConfig
from runtime.rllib.algorithms.marwil import MARWILConfig
from runtime.rllib.core.columns import Columns
from runtime.rllib.core.rl_module.rl_module import RLModuleSpec
from runtime.rllib.core.rl_module.torch import TorchRLModule
from runtime.rllib.offline.offline_env_runner import OfflineSingleAgentEnvRunner

torch.set_num_threads(1)  # waiting threads of torch slow down busy machines


@pytest.fixture(scope="module")
def session(no_leaks):
    import runtime as ray

    ray.init(num_cpus=2)
    yield
    ray.shutdown()


class Balancing(TorchRLModule):
    """A scripted policy that balances CartPole, and does something else in one of ten steps."""

    def setup(self):
        self.unused = torch.nn.Linear(1, 1)

    def _forward(self, batch, **kwargs):
        obs = batch[Columns.OBS]
        push_right = obs[:, 2] + 0.5 * obs[:, 3] > 0
        probabilities = torch.where(push_right, 0.95, 0.05)
        return {Columns.ACTION_DIST_INPUTS: torch.stack([1 - probabilities, probabilities], -1).log()}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """About 6000 steps of `Balancing`, as columns and as episodes."""
    folder = tmp_path_factory.mktemp("recorded")
    for name, as_episodes in (("columns", False), ("episodes", True)):
        config = (
            BCConfig()
            .environment("CartPole-v1")
            .env_runners(num_envs_per_env_runner=4)
            .rl_module(rl_module_spec=RLModuleSpec(module_class=Balancing))
            .offline_data(output=str(folder / name), output_write_episodes=as_episodes)
            .debugging(seed=1)
        )
        runner = OfflineSingleAgentEnvRunner(config=config, worker_index=1)
        samples = [runner.collect(env_steps=3000), *[runner.sample(num_timesteps=1000) for _ in range(3)]]
        runner.stop()
        steps = samples[0].env_steps + sum(len(episode) for sample in samples[1:] for episode in sample)
        tables = [
            pq.read_table(path) for path in sorted((folder / name / "cartpole-v1").glob("run-000001-*"))
        ]
        assert len(tables) == 4
        if not as_episodes:
            assert sum(table.num_rows for table in tables) == steps
    return folder


def offline(kind, path, **data):
    return (
        kind()
        .environment("CartPole-v1")
        .training(lr=3e-3, train_batch_size_per_learner=256)
        .rl_module(model_config={"fcnet_hiddens": [32]})
        .offline_data(input_=str(path), dataset_num_iters_per_learner=200, **data)
        .evaluation(evaluation_interval=2, evaluation_duration=10)
        .evaluation(offline_evaluation_interval=2, offline_eval_batch_size_per_runner=2048)
        .debugging(seed=0)
    )


@pytest.mark.usefixtures("session")
@pytest.mark.parametrize("kind", [BCConfig, MARWILConfig])
def test_a_policy_learns_to_balance_from_files(kind, recorded):
    config = offline(kind, recorded / "columns" / "cartpole-v1")
    algo = config.build_algo()
    first = algo.train()
    assert "evaluation" not in first
    result = algo.train()
    algo.stop()
    learned, evaluated = result["learners"]["default_policy"], result["evaluation"]
    if kind is BCConfig:
        assert learned["policy_loss"] < 0.6  # chance has log(2)
    else:
        assert learned["vf_loss"] < first["learners"]["default_policy"]["vf_loss"]
    assert evaluated["env_runners"]["episode_return_mean"] > 150
    assert result["num_env_steps_sampled_lifetime"] == 2 * 200 * 256
    loss = evaluated["offline_eval_runners"]["default_policy"]["total_eval_loss"]
    assert 0 < loss < 1.2 * first["learners"]["default_policy"]["total_loss"]


@pytest.mark.usefixtures("session")
def test_recorded_episodes_are_as_good(recorded):
    config = offline(BCConfig, recorded / "episodes", input_read_episodes=True)
    seen = []
    config.callbacks(
        on_evaluate_offline_start=lambda algorithm, **kwargs: seen.append(algorithm.training_iteration),
        on_evaluate_offline_end=lambda evaluation_metrics, **kwargs: seen.append(evaluation_metrics),
    )
    algo = config.build_algo()
    algo.train()
    assert seen == []
    result = algo.train()
    assert result["evaluation"]["env_runners"]["episode_return_mean"] > 150
    assert seen[0] == 1
    assert "total_eval_loss" in seen[1]["default_policy"]
    algo.stop()


@pytest.mark.usefixtures("session")
def test_spaces_suffice_without_an_environment(recorded, tmp_path):
    env = gym.make("CartPole-v1")
    config = (
        BCConfig()
        .environment(observation_space=env.observation_space, action_space=env.action_space)
        .offline_data(input_=str(recorded / "columns"), dataset_num_iters_per_learner=3)
        .training(train_batch_size_per_learner=64)
    )
    algo = config.build_algo()
    algo.train()
    checkpoint = algo.save_to_path(tmp_path / "checkpoint")
    restored = type(algo).from_checkpoint(checkpoint)
    weights, others = algo.get_weights(), restored.get_weights()
    np.testing.assert_equal(others, weights)
    algo.stop()
    restored.stop()


def test_the_loss_is_the_negative_log_likelihood():
    config = (
        BCConfig()
        .environment(observation_space=gym.spaces.Box(-1, 1, (3,)), action_space=gym.spaces.Discrete(4))
        .rl_module(model_config={"fcnet_hiddens": [8]})
        .offline_data(input_="unused")
    )
    learner = config.build_learner()
    rng = np.random.default_rng(0)
    obs, actions = rng.uniform(-1, 1, (9, 3)).astype(np.float32), rng.integers(0, 4, 9)
    batch = {"default_policy": {"obs": torch.from_numpy(obs), "actions": torch.from_numpy(actions)}}
    fwd_out = learner.module.forward_train(batch)
    logits = fwd_out["default_policy"]["action_dist_inputs"].detach().double().numpy()
    expected = -np.mean([row[a] - np.log(np.exp(row).sum()) for row, a in zip(logits, actions, strict=True)])
    losses = learner.compute_losses(fwd_out=fwd_out, batch=batch)
    assert float(losses["default_policy"].detach()) == pytest.approx(expected, rel=1e-5)


def test_beta_and_missing_input_are_refused():
    with pytest.raises(ValueError, match="MARWIL"):
        BCConfig().training(beta=0.5).offline_data(input_="x").validate()
    with pytest.raises(ValueError, match="input_="):
        BCConfig().environment("CartPole-v1").validate()
