"""Evaluation on offline data: losses, losses of users, and estimates of returns."""

import gymnasium as gym
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import runtime as ray
from runtime.data.block import BlockAccessor
from runtime.rllib._core.rollout import Rollout, Segments
from runtime.rllib._core.tables import table_from_rollout
from runtime.rllib.algorithms.bc import BCConfig
from runtime.rllib.offline.offline_evaluation_runner import OfflineEvaluationRunner
from runtime.rllib.offline.offline_evaluation_runner_group import OfflineEvaluationRunnerGroup

torch.set_num_threads(1)  # waiting threads of torch slow down busy machines


@pytest.fixture(scope="module", autouse=True)
def session(no_leaks):
    ray.init(num_cpus=2)
    yield
    ray.shutdown()


LENGTHS = np.array([3, 2, 4])


def rollout():
    rng = np.random.default_rng(0)
    rows = int(LENGTHS.sum())
    segments = Segments(
        LENGTHS,
        np.array([True, False, False]),
        np.array([False, True, False]),
        list("abc"),
        np.zeros(3, np.int64),
    )
    columns = {
        "obs": rng.uniform(-1, 1, (rows, 2)).astype(np.float32),
        "actions": rng.integers(0, 2, rows),
        "rewards": rng.uniform(0, 1, rows).astype(np.float32),
        "action_logp": np.full(rows, np.log(0.5), np.float32),
    }
    return Rollout(columns, segments, np.zeros((3, 2), np.float32))


def runner(folder, *, without=(), **evaluation):
    table = {name: column for name, column in table_from_rollout(rollout()).items() if name not in without}
    pq.write_table(BlockAccessor.batch_to_block(table), folder / "table.parquet")
    config = (
        BCConfig()
        .environment(observation_space=gym.spaces.Box(-1, 1, (2,)), action_space=gym.spaces.Discrete(2))
        .rl_module(model_config={"fcnet_hiddens": [8]})
        .offline_data(input_=str(folder))
        .evaluation(
            offline_eval_batch_size_per_runner=9, dataset_num_iters_per_offline_eval_runner=1, **evaluation
        )
        .debugging(seed=0)
    )
    return OfflineEvaluationRunner(config, module_spec=config.get_multi_rl_module_spec())


def logp_of(made):
    module = made.module["default_policy"]
    with torch.no_grad():
        logits = module.forward_inference({"obs": torch.from_numpy(rollout().columns["obs"])})[
            "action_dist_inputs"
        ]
    return logits.log_softmax(-1).numpy()[np.arange(9), rollout().columns["actions"]]


def test_the_loss_is_that_of_training(tmp_path):
    made = runner(tmp_path)
    before = made.module.get_state()
    found = made.run()
    assert float(found["default_policy"]["total_eval_loss"].peek()) == pytest.approx(
        -logp_of(made).mean(), rel=1e-5
    )
    np.testing.assert_equal(made.module.get_state(), before)


def test_a_loss_of_the_user_is_taken(tmp_path):
    def loss(self, *, module_id, config, batch, fwd_out):
        assert module_id == "default_policy"
        assert "action_dist_inputs" in fwd_out
        return batch["rewards"].sum()

    found = runner(tmp_path, offline_loss_for_module_fn=loss).run()
    total = rollout().columns["rewards"].sum()
    assert float(found["default_policy"]["total_eval_loss"].peek()) == pytest.approx(total, rel=1e-5)


@pytest.mark.parametrize("kind", ["is", "pdis"])
def test_returns_are_estimated_from_whole_episodes(tmp_path, kind):
    made = runner(tmp_path, offline_evaluation_type=kind)
    ratios, rewards = np.exp(logp_of(made) - np.log(0.5)), rollout().columns["rewards"]
    expected = []
    for start, end in ((0, 3), (3, 5)):  # the third episode goes on
        products = np.cumprod(ratios[start:end])
        weights = products if kind == "pdis" else np.full(end - start, products[-1])
        expected.append((weights * rewards[start:end]).sum())
    found = made.run()
    assert float(found["episode_return_mean"].peek()) == pytest.approx(np.mean(expected), rel=1e-4)
    assert float(found["episode_len_mean"].peek()) == pytest.approx(2.5)


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(ValueError, match="'action_logp'"):
        runner(tmp_path, without=["action_logp"], offline_evaluation_type="is").run()
    with pytest.raises(ValueError, match="'eval_loss', 'is' or 'pdis'"):
        runner(tmp_path, offline_evaluation_type="dr")


def test_lost_actors_are_replaced(tmp_path):
    made = runner(tmp_path, num_offline_eval_runners=2)
    spec = made.config.get_multi_rl_module_spec()
    group = OfflineEvaluationRunnerGroup(config=made.config, module_spec=spec, spaces=None)
    loss = -logp_of(made).mean()

    def losses():
        return [
            float(each["default_policy"]["total_eval_loss"].peek())
            for each in group.evaluate(made.get_state())
        ]

    assert losses() == pytest.approx([loss, loss], rel=1e-5)
    ray.kill(group._actors[0])
    assert losses() == pytest.approx([loss], rel=1e-5)
    assert group.num_healthy_remote_runners == 1
    assert losses() == pytest.approx([loss, loss], rel=1e-5)
    group.stop()
