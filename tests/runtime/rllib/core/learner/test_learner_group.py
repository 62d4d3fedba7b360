from __future__ import annotations

import os
import pathlib
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import runtime as ray
from runtime.rllib._core.rollout import Rollout
from runtime.rllib.algorithms.ppo import PPOConfig
from runtime.rllib.core.learner import LearnerGroup
from runtime.rllib.core.learner.learner_group import LearnerDiedError
from tests.runtime.rllib._core.making import rollout
from tests.runtime.rllib.core.learner.learning import equal, learner, spec, specs, values_of

TRAINING = {"num_epochs": 2, "minibatch_size": 16}


def rows(seed: int = 0) -> Rollout:
    made = rollout(np.random.default_rng(seed), 4, 40)
    made.columns["obs"][:, 0] = 0
    made.final_obs[:, 0] = 0
    return made


def config(learners: int = 0, **training: Any) -> PPOConfig:
    return PPOConfig().training(lr=0.01, **training).learners(num_learners=learners, num_cpus_per_learner=0.5)


@pytest.fixture(scope="module")
def pair(session: None) -> Iterator[LearnerGroup]:
    """Two learners without a seed: each draws other weights."""
    group = LearnerGroup(config=config(2), module_spec=specs("a", "b"))
    yield group
    group.shutdown()


def of_all(group: LearnerGroup, module_id: str = "a") -> list[dict[str, np.ndarray]]:
    return group.foreach_learner(lambda made: made.module[module_id].get_state())


def test_learners_start_from_the_same_weights_and_stay_together(pair: LearnerGroup) -> None:
    before = of_all(pair)
    assert equal(*before)
    results = pair.update(rollouts={"a": rows(0), "b": rows(1)}, **TRAINING)
    assert len(results) == len(pair) == 2
    one, other = of_all(pair)
    assert equal(one, other)
    assert not equal(one, before[0])
    steps = [values_of(result)["a"]["num_module_steps_trained"] for result in results]
    assert steps[0] == steps[1] > 0  # the same number of minibatches


def test_every_row_is_used_though_the_last_minibatch_is_not_full(pair: LearnerGroup) -> None:
    given = rollout(np.random.default_rng(0), 40, 40)
    size = (
        given.rows // 3
    )  # so a learner, which has about half of the rows, needs one full minibatch and a part
    results = pair.update(rollouts={"a": given, "b": rows(1)}, num_epochs=1, minibatch_size=size)
    assert sum(values_of(result)["a"]["num_module_steps_trained"] for result in results) >= given.rows


def test_gradients_are_the_means_over_the_learners(pair: LearnerGroup) -> None:
    def gradients(made: Any) -> list[np.ndarray]:
        return [param.grad.numpy() for param in made.module["a"].parameters()]

    pair.update(rollouts={"a": rows(2), "b": rows(3)})
    one, other = pair.foreach_learner(gradients)
    for mine, yours in zip(one, other, strict=True):
        np.testing.assert_array_equal(mine, yours)


def test_modules_are_added_and_removed_everywhere(pair: LearnerGroup) -> None:
    made = pair.add_module(module_id="new", module_spec=spec())
    assert set(made.rl_module_specs) == {"a", "b", "new"}
    assert equal(*of_all(pair, "new"))
    pair.update(rollouts={"new": rows()}, **TRAINING)
    assert equal(*of_all(pair, "new"))
    pair.remove_module("new")
    assert set(pair.get_weights()) == {"a", "b"}


def test_weights_are_set_on_all_learners(pair: LearnerGroup) -> None:
    weights = pair.get_weights(["a"])
    assert set(weights) == {"a"}
    pair.set_weights({"a": {name: np.zeros_like(each) for name, each in weights["a"].items()}})
    for state in of_all(pair):
        assert not any(each.any() for each in state.values())
    pair.set_weights(weights)
    assert equal(of_all(pair)[1], weights["a"])


def test_a_checkpoint_of_one_restores_all(pair: LearnerGroup, tmp_path: pathlib.Path) -> None:
    before = of_all(pair)[0]
    pair.save_to_path(tmp_path)
    assert (tmp_path / "learner" / "rl_module" / "a").is_dir()
    pair.update(rollouts={"a": rows(5), "b": rows(6)}, **TRAINING)
    assert not equal(of_all(pair)[0], before)
    pair.restore_from_path(tmp_path)
    assert all(equal(state, before) for state in of_all(pair))


def test_asynchronous_updates_give_their_results_later(pair: LearnerGroup) -> None:
    data = {"a": rows(7), "b": rows(8)}
    assert pair.update(rollouts=data, async_update=True, return_state=True, **TRAINING) == []
    results: list[Any] = []
    while not results:
        results = pair.update_results()
    assert len(results) == 2
    assert set(results[0].pop("_rl_module_state_after_update")) == {"a", "b"}
    assert "policy_loss" in values_of(results[0])["a"]


def test_what_a_learner_that_is_behind_cannot_take_is_counted(session: None) -> None:
    group = LearnerGroup(config=config(1), module_spec=spec())
    try:
        data = rows()
        limit = group.config.max_requests_in_flight_per_learner
        for _ in range(limit + 2):
            group.update(rollouts={"default_policy": data}, async_update=True, num_epochs=200)
        dropped = group.get_stats()["learner_group_ts_dropped_lifetime"]
        assert dropped in (data.rows, 2 * data.rows)  # one update may have ended meanwhile
        group.wait_for_room(30.0)
        assert group.update_results()
    finally:
        group.shutdown()


def test_a_learner_that_dies_ends_the_group_with_an_error_that_says_so(session: None) -> None:
    group = LearnerGroup(config=config(2), module_spec=spec())
    pids = group.foreach_learner(lambda made: os.getpid())
    os.kill(pids[1], signal.SIGKILL)
    with pytest.raises(LearnerDiedError, match=r"(?s)Learner \d of 2 has died.*from_checkpoint"):
        group.update(rollouts={"default_policy": rows()}, num_epochs=50)
    assert len(group) == 0


def test_an_error_in_a_learner_is_raised_as_it_is(session: None) -> None:
    group = LearnerGroup(config=config(1), module_spec=spec())
    try:
        with pytest.raises(ZeroDivisionError):
            group.foreach_learner(lambda made: 1 / 0)
        assert group.foreach_learner(lambda made: 7) == [7]  # the group goes on
    finally:
        group.shutdown()


def test_a_local_group_is_one_learner_in_this_process(session: None, tmp_path: pathlib.Path) -> None:
    group = LearnerGroup(config=config(), module_spec=spec())
    assert group.is_local
    assert group
    assert group.foreach_learner(lambda made: os.getpid()) == [os.getpid()]
    with pytest.raises(ValueError, match="num_learners"):
        group.update(rollouts={"default_policy": rows()}, async_update=True)
    [result] = group.update(rollouts={"default_policy": rows()}, return_state=True)
    weights = group.get_weights(["default_policy"], inference_only=True)
    assert equal(result["_rl_module_state_after_update"]["default_policy"], weights["default_policy"])
    assert not any("critic" in name for name in weights["default_policy"])
    views = group.get_weights(copy=False)["default_policy"]
    group.update(rollouts={"default_policy": rows()})
    assert equal(views, group.get_weights()["default_policy"])
    group.save_to_path(tmp_path)
    again = LearnerGroup.from_checkpoint(tmp_path)
    assert equal(again.get_weights()["default_policy"], group.get_weights()["default_policy"])


def test_two_learners_learn_what_one_learns_from_all_rows(session: None) -> None:
    """With one minibatch of all rows, the mean of two equal shards' gradients is the gradient of the whole."""

    data = rows(3)
    half = data.rows // 2
    batch = {
        "obs": data.columns["obs"][: 2 * half],
        "actions": data.columns["actions"][: 2 * half],
        "action_logp": data.columns["action_logp"][: 2 * half],
        "advantages": np.linspace(-1, 1, 2 * half, dtype=np.float32),
        "value_targets": np.linspace(0, 2, 2 * half, dtype=np.float32),
    }
    settings = config(2, use_kl_loss=False)
    alone = learner(config(use_kl_loss=False).debugging(seed=3))
    group = LearnerGroup(config=settings, module_spec=spec())
    try:
        group.set_weights({"default_policy": alone.module["default_policy"].get_state()})
        alone.update(batch={"default_policy": batch})
        group.update(batch={"default_policy": batch})
        expected = alone.module["default_policy"].get_state()
        for name, each in group.get_weights()["default_policy"].items():
            np.testing.assert_allclose(each, expected[name], atol=1e-5)
    finally:
        group.shutdown()
    assert ray.is_initialized()
