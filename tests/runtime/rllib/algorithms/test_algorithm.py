"""The course of an algorithm: training, evaluation, callbacks, checkpoints, modules."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from runtime.rllib.algorithms.algorithm import Algorithm
from runtime.rllib.algorithms.ppo.ppo import PPO, PPOConfig
from runtime.rllib.callbacks.callbacks import RLlibCallback
from runtime.rllib.connectors.env_to_module import MeanStdFilter
from runtime.rllib.core.rl_module.rl_module import RLModule, RLModuleSpec
from runtime.rllib.env.multi_agent_env import make_multi_agent


def small(**training: Any) -> PPOConfig:
    settings = {"train_batch_size_per_learner": 64, "minibatch_size": 32, "num_epochs": 1, "lr": 1e-3}
    return (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=2)
        .rl_module(model_config={"fcnet_hiddens": [8]})
        .training(**{**settings, **training})
        .debugging(seed=1)
    )


@pytest.fixture
def built() -> Iterator[Any]:
    """A function that builds algorithms, which are stopped at the end."""
    made: list[Algorithm] = []

    def build(config: PPOConfig) -> Any:
        made.append(config.build_algo())
        return made[-1]

    yield build
    for each in made:
        each.stop()


def weights_of(algo: Algorithm) -> dict[str, np.ndarray]:
    return dict(algo.get_weights()["default_policy"])


def assert_same_weights(one: Algorithm, other: Algorithm) -> None:
    first, second = weights_of(one), weights_of(other)
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


def test_results_have_rays_keys(built: Any) -> None:
    algo = built(small())
    algo.train()
    result = algo.train()
    assert (result["training_iteration"], algo.training_iteration, result["done"]) == (2, 2, False)
    runners = result["env_runners"]
    assert 0 < runners["episode_return_mean"] <= runners["episode_return_max"] < 500
    assert 64 <= runners["num_env_steps_sampled"] < 72
    assert runners["num_env_steps_sampled_lifetime"] == result["num_env_steps_sampled_lifetime"] >= 128
    assert runners["num_module_steps_sampled"]["default_policy"] == runners["num_env_steps_sampled"]
    assert runners["module_episode_return_mean"]["default_policy"] == runners["episode_return_mean"]
    assert {"policy_loss", "vf_loss", "entropy", "total_loss"} <= result["learners"]["default_policy"].keys()
    assert result["learners"]["__all_modules__"]["num_env_steps_trained_lifetime"] >= 128
    assert {"training_iteration", "training_step", "env_runner_sampling_timer"} <= result["timers"].keys()
    assert {"restore_env_runners", "synch_env_connectors"} <= result["timers"].keys()
    faults = dict.fromkeys(("healthy_workers", "remote_worker_restarts", "env_runners_dropped_lifetime"), 0)
    assert result["fault_tolerance"] == {f"num_{name}": count for name, count in faults.items()}
    assert result["env_runner_group"] == {"actor_manager_num_outstanding_async_reqs": 0}
    assert result["config"]["lr"] == 1e-3
    assert {"time_total_s", "time_this_iter_s", "date", "pid", "node_ip", "perf"} <= result.keys()


def test_an_iteration_goes_on_until_enough_was_sampled(built: Any) -> None:
    algo = built(small().reporting(min_sample_timesteps_per_iteration=200))
    result = algo.train()
    assert result["num_training_step_calls_per_iteration"] > 1
    assert result["env_runners"]["num_env_steps_sampled"] >= 200


def test_the_config_is_frozen_and_the_given_one_is_not(built: Any) -> None:
    config = small()
    algo = built(config)
    with pytest.raises(AttributeError, match="frozen"):
        algo.config.lr = 1
    config.lr = 1


def test_dicts_as_configs() -> None:
    settings = {**small().to_dict(), "num_epochs": 2}
    algo = PPO(config=settings)
    assert (algo.config.num_epochs, algo.config.env) == (2, "CartPole-v1")
    algo.stop()
    with pytest.raises(RuntimeError, match="stopped"):
        algo.train()


# ---- checkpoints


def test_training_goes_on_exactly_from_a_checkpoint(built: Any, tmp_path: pathlib.Path) -> None:
    algo = built(small())
    algo.train()
    algo.train()
    again = Algorithm.from_checkpoint(algo.save_to_path(tmp_path))
    try:
        assert type(again) is PPO
        assert again.training_iteration == 2
        assert_same_weights(algo, again)
        # The same experience makes the same step: the optimizer's moments were restored.
        rollouts = algo.env_runner.collect(env_steps=64).rollouts
        for each in (algo, again):
            each.learner_group.update(rollouts=rollouts, num_epochs=1, minibatch_size=None)
        assert_same_weights(algo, again)
        result = again.train()
        assert result["training_iteration"] == 3
        assert result["env_runners"]["num_env_steps_sampled_lifetime"] >= 192
        assert result["time_total_s"] > result["time_this_iter_s"]
    finally:
        again.stop()


def test_a_module_is_loaded_from_an_algorithms_checkpoint(built: Any, tmp_path: pathlib.Path) -> None:
    algo = built(small())
    folder = pathlib.Path(
        algo.save_to_path(tmp_path), "learner_group", "learner", "rl_module", "default_policy"
    )
    module = RLModule.from_checkpoint(folder)
    obs = torch.ones(3, 4)
    expected = algo.get_module().forward_inference({"obs": obs})["action_dist_inputs"]
    torch.testing.assert_close(module.forward_inference({"obs": obs})["action_dist_inputs"], expected)

    other = built(small().debugging(seed=2))
    other.restore_from_path(folder, component="learner_group/learner/rl_module/default_policy")
    assert_same_weights(algo, other)
    found = other.get_module().forward_inference({"obs": obs})["action_dist_inputs"]
    torch.testing.assert_close(found, expected)  # the runner has the weights, too

    spec = RLModuleSpec(load_state_path=str(folder))
    assert_same_weights(algo, built(small().debugging(seed=3).rl_module(rl_module_spec=spec)))


def test_the_names_of_trainables_save_and_restore(built: Any) -> None:
    algo, other = built(small()), built(small().debugging(seed=2))
    result = algo.train()
    saved = algo.save()
    assert saved.metrics["training_iteration"] == result["training_iteration"] == 1
    for given in (saved, saved.checkpoint, saved.checkpoint.path):
        other.set_weights({"default_policy": {name: 0 * each for name, each in weights_of(other).items()}})
        other.restore(given)
        assert_same_weights(algo, other)


def test_weights_are_set_everywhere(built: Any) -> None:
    algo, other = built(small()), built(small().debugging(seed=2))
    other.set_weights(algo.get_weights())
    assert_same_weights(algo, other)
    obs = {"obs": torch.ones(1, 4)}
    one, two = (each.get_module().forward_inference(obs)["action_dist_inputs"] for each in (algo, other))
    torch.testing.assert_close(one, two)
    assert algo.get_module("nothing") is None


# ---- evaluation


def test_evaluation_at_intervals(built: Any) -> None:
    config = small().evaluation(
        evaluation_interval=2, evaluation_duration=3, evaluation_config={"explore": False}
    )
    algo = built(config)
    assert "evaluation" not in algo.train()
    evaluated = algo.train()["evaluation"]
    assert evaluated["env_runners"]["num_episodes"] == 3
    assert evaluated["env_runners"]["episode_return_mean"] > 0
    assert evaluated["num_env_steps_sampled_for_evaluation_this_iter"] > 0
    evaluated["env_runners"].clear()  # a result belongs to who gets it
    assert algo.train()["evaluation"]["env_runners"]["num_episodes"] == 3, "the last evaluation is repeated"
    assert algo.evaluate()["env_runners"]["num_episodes"] == 3


def test_evaluation_of_timesteps_starts_new_episodes(built: Any) -> None:
    config = small().evaluation(
        evaluation_interval=1, evaluation_duration=30, evaluation_duration_unit="timesteps"
    )
    evaluated = built(config).train()["evaluation"]
    assert 30 <= evaluated["num_env_steps_sampled_for_evaluation_this_iter"] < 36


def test_a_function_evaluates(built: Any) -> None:
    def evaluate(algorithm: Any, group: Any) -> Any:
        assert group is algorithm.eval_env_runner_group
        return {"score": 5}, 10, 10

    algo = built(small().evaluation(evaluation_interval=1, custom_evaluation_function=evaluate))
    expected = {"score": 5, "num_env_steps_sampled_for_evaluation_this_iter": 10}
    assert expected.items() <= algo.train()["evaluation"].items()


def test_evaluation_must_be_configured(built: Any) -> None:
    with pytest.raises(ValueError, match="evaluation_interval"):
        built(small()).evaluate()


# ---- callbacks


class Events(RLlibCallback):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def on_algorithm_init(self, *, algorithm: Any, **kwargs: Any) -> None:
        assert algorithm.learner_group is not None
        self.seen.append("init")

    def on_train_result(self, *, algorithm: Any, metrics_logger: Any, result: Any, **kwargs: Any) -> None:
        result["mine"] = result["training_iteration"] * 10
        self.seen.append("result")

    def on_evaluate_start(self, *, algorithm: Any, **kwargs: Any) -> None:
        self.seen.append("start")

    def on_evaluate_end(self, *, evaluation_metrics: Any, **kwargs: Any) -> None:
        evaluation_metrics["more"] = 1
        self.seen.append("end")

    def on_checkpoint_loaded(self, *, algorithm: Any, **kwargs: Any) -> None:
        self.seen.append("loaded")


def test_callbacks_of_the_algorithm(built: Any, tmp_path: pathlib.Path) -> None:
    algo = built(small().callbacks(Events).evaluation(evaluation_interval=1, evaluation_duration=1))
    result = algo.train()
    assert (result["mine"], result["evaluation"]["more"]) == (10, 1)
    algo.restore_from_path(algo.save_to_path(tmp_path))
    assert algo.callbacks[0].seen == ["init", "start", "end", "result", "loaded"]


# ---- several modules


def test_modules_come_and_go(built: Any, tmp_path: pathlib.Path) -> None:
    config = (
        small()
        .environment(make_multi_agent("CartPole-v1"), env_config={"num_agents": 2})
        .env_runners(num_envs_per_env_runner=1)
        .multi_agent(policies={"p0", "p1"}, policy_mapping_fn=lambda agent_id, episode, **kw: f"p{agent_id}")
    )
    algo = built(config)
    assert set(algo.train()["learners"]) == {"__all_modules__", "p0", "p1"}
    own = algo.env_runner.module["p0"]
    spec = RLModuleSpec(
        module_class=type(own),
        catalog_class=own.catalog.__class__,
        observation_space=own.observation_space,
        action_space=own.action_space,
        model_config={"fcnet_hiddens": [4]},
    )
    specs = algo.add_module(
        "p2",
        spec,
        new_agent_to_module_mapping_fn=lambda agent_id, episode, **kw: f"p{1 + agent_id}",
        new_should_module_be_updated=["p2"],
    )
    assert set(specs.rl_module_specs) == {"p0", "p1", "p2"}
    with pytest.raises(ValueError, match="has a module 'p2'"):
        algo.add_module("p2", spec)
    before = algo.get_weights()
    algo.train()
    after = algo.get_weights()
    assert [m for m in before if not all(np.array_equal(before[m][k], after[m][k]) for k in before[m])] == [
        "p2"
    ]

    again = PPO.from_checkpoint(algo.save_to_path(tmp_path))
    try:
        assert set(again.config.policies) == {"p0", "p1", "p2"}
        np.testing.assert_array_equal(
            *(
                np.concatenate([v.ravel() for v in each.get_weights()["p2"].values()])
                for each in (algo, again)
            )
        )
        again.remove_module("p0")
        assert again.get_module("p0") is None
        assert "p0" not in again.train()["learners"]
        with pytest.raises(KeyError, match="no module 'p0'"):
            again.remove_module("p0")
    finally:
        again.stop()


def test_a_single_agent_takes_no_more_modules(built: Any) -> None:
    with pytest.raises(ValueError, match="single agent"):
        built(small()).add_module("more", RLModuleSpec())


# ---- resources and the old stack


def test_resources_of_a_trial() -> None:
    config = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=2, num_cpus_per_env_runner=0.5)
        .evaluation(evaluation_interval=1, evaluation_num_env_runners=1)
        .learners(num_learners=1, num_gpus_per_learner=1)
        .resources(num_cpus_for_main_process=2, placement_strategy="SPREAD")
    )
    config.num_aggregator_actors_per_learner = 2  # there are none, so nothing is reserved for them
    for given in (config, config.to_dict()):
        request = PPO.default_resource_request(given)
        assert request is not None
        assert request.bundles == [{"CPU": 2}, {"CPU": 0.5}, {"CPU": 0.5}, {"CPU": 0.5}, {"GPU": 1}]
        assert request.strategy == "SPREAD"


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda algo: algo.compute_single_action(0), "forward_inference"),
        (lambda algo: algo.compute_actions({}), "forward_inference"),
        (lambda algo: algo.get_policy(), "get_module"),
        (lambda algo: algo.add_policy("p"), "add_module"),
        (lambda algo: algo.remove_policy("p"), "remove_module"),
    ],
)
def test_the_old_stack_says_what_to_use(call: Any, hint: str) -> None:
    with pytest.raises(ValueError, match=hint):
        call(PPO.__new__(PPO))


def test_attributes_of_the_old_stack_say_what_to_use() -> None:
    for name, other in (("workers", "env_runner_group"), ("export_policy_checkpoint", "get_module")):
        with pytest.raises(AttributeError, match=other):
            getattr(PPO.__new__(PPO), name)


def test_connectors_are_part_of_a_checkpoint(built: Any, tmp_path: pathlib.Path) -> None:
    config = small().env_runners(env_to_module_connector=lambda env, spaces, device: MeanStdFilter())
    algo = built(config)
    algo.train()
    path = algo.save_to_path(tmp_path)
    assert (tmp_path / "env_runner" / "env_to_module_connector").is_dir()
    again = Algorithm.from_checkpoint(path)
    try:
        one, two = (each.env_runner.get_state("env_to_module_connector") for each in (algo, again))
        stats = [
            each["env_to_module_connector"]["000_MeanStdFilter"][None]["running_stats"][0]
            for each in (one, two)
        ]
        assert stats[0]["count"] == stats[1]["count"] > 64
        np.testing.assert_array_equal(stats[0]["mean"], stats[1]["mean"])
    finally:
        again.stop()


def test_frozen_modules_can_be_left_out_of_checkpoints(built: Any, tmp_path: pathlib.Path) -> None:
    config = (
        small()
        .environment(make_multi_agent("CartPole-v1"), env_config={"num_agents": 2})
        .env_runners(num_envs_per_env_runner=1)
        .multi_agent(
            policies={"p0", "p1"},
            policy_mapping_fn=lambda agent_id, episode, **kw: f"p{agent_id}",
            policies_to_train=["p1"],
        )
        .checkpointing(checkpoint_trainable_policies_only=True)
    )
    algo, other = built(config), built(config.copy().debugging(seed=9))
    algo.save_to_path(tmp_path)
    folder = tmp_path / "learner_group" / "learner" / "rl_module"
    assert [each.name for each in folder.iterdir() if each.is_dir()] == ["p1"]
    before = other.get_weights()
    other.restore_from_path(tmp_path)
    saved, after = algo.get_weights(), other.get_weights()
    for name in saved["p1"]:
        np.testing.assert_array_equal(after["p1"][name], saved["p1"][name])
        np.testing.assert_array_equal(after["p0"][name], before["p0"][name])


def test_the_same_seed_gives_the_same_training(built: Any) -> None:
    one, other = built(small()), built(small())
    for _ in range(2):
        one.train()
    for _ in range(2):
        other.train()
    assert_same_weights(one, other)


def test_a_restored_algorithm_learns_at_the_rate_of_its_own_config(
    built: Any, tmp_path: pathlib.Path
) -> None:
    algo = built(small())
    algo.train()
    other = built(small(lr=0.25))
    other.restore_from_path(algo.save_to_path(tmp_path))
    assert other.train()["learners"]["default_policy"]["default_optimizer_learning_rate"] == 0.25
