"""Settings of algorithms: setters, dicts, copies, checks, and what is derived."""

from __future__ import annotations

import inspect
import pathlib
import pickle
import re
import warnings
from typing import Any

import gymnasium
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime import cloudpickle, rllib
from runtime.rllib.algorithms._config.settings import REPLACED
from runtime.rllib.algorithms._config.without_effect import WITHOUT_EFFECT
from runtime.rllib.algorithms.algorithm_config import AlgorithmConfig
from runtime.rllib.algorithms.ppo.ppo import PPOConfig
from runtime.rllib.algorithms.registry import ALGORITHMS, get_algorithm_config
from runtime.rllib.callbacks.callbacks import RLlibCallback
from runtime.rllib.policy.policy import PolicySpec

SETTERS = [
    name
    for name, method in inspect.getmembers(AlgorithmConfig, inspect.isfunction)
    if hasattr(method, "__wrapped__") and not name.startswith("_")
]


def test_setters_chain_and_keep_what_is_not_given() -> None:
    config = (
        AlgorithmConfig()
        .environment("CartPole-v1", env_config={"a": 1})
        .environment(env_config={"b": 2})
        .env_runners(num_env_runners=3)
        .training(lr=0.1, grad_clip=None)
        .learners(num_learners=2)
        .debugging(seed=4)
    )
    assert (config.env, config.env_config) == ("CartPole-v1", {"a": 1, "b": 2})
    assert (config.num_env_runners, config.num_learners, config.seed) == (3, 2, 4)
    assert (config.lr, config.grad_clip, config.gamma) == (0.1, None, 0.99)


def test_groups_of_settings_are_rays() -> None:
    assert set(SETTERS) == {
        "api_stack",
        "callbacks",
        "checkpointing",
        "debugging",
        "env_runners",
        "environment",
        "evaluation",
        "experimental",
        "fault_tolerance",
        "framework",
        "learners",
        "multi_agent",
        "offline_data",
        "python_environment",
        "reporting",
        "resources",
        "rl_module",
        "training",
    }


@pytest.mark.parametrize("setter", SETTERS)
def test_unknown_keywords_are_refused(setter: str) -> None:
    with pytest.raises(TypeError, match="no setting 'no_such_thing'"):
        getattr(AlgorithmConfig(), setter)(no_such_thing=1)


def test_near_names_are_told() -> None:
    with pytest.raises(TypeError, match=r"Did you mean env_runners\(num_env_runners"):
        AlgorithmConfig().env_runners(num_env_runer=2)
    with pytest.raises(TypeError, match=r"learners\(\) has it"):
        AlgorithmConfig().env_runners(num_learners=2)
    with pytest.raises(TypeError, match=r"training\(clip_param=...\)"):
        PPOConfig().training(clip_parm=0.1)


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda c: c.env_runners(num_rollout_workers=2), "num_env_runners"),
        (lambda c: c.training(model={}), "rl_module"),
        (lambda c: c.resources(num_gpus=1), "num_gpus_per_learner"),
        (lambda c: c.api_stack(enable_rl_module_and_learner=False), "RLModules"),
        (lambda c: c.framework("tf2"), "torch"),
        (lambda c: c.evaluation(off_policy_estimation_methods={"is": 1}), "offline_evaluation_type"),
        (lambda c: c.multi_agent(observation_fn=print), "env_to_module_connector"),
        (lambda c: c.update_from_dict({"num_workers": 2}), "num_env_runners"),
    ],
)
def test_the_old_stack_is_refused_with_what_to_use(call: Any, hint: str) -> None:
    with pytest.raises(ValueError, match=hint):
        call(AlgorithmConfig())


def test_attributes_of_the_old_stack() -> None:
    with pytest.raises(AttributeError, match="num_env_runners"):
        _ = AlgorithmConfig().num_rollout_workers
    with pytest.raises(AttributeError, match="has no setting 'nothing'"):
        _ = AlgorithmConfig().nothing


def test_settings_without_effect_warn_where_they_are_set() -> None:
    with pytest.warns(UserWarning, match="policy_map_capacity=3 has no effect") as caught:
        config = PPOConfig().multi_agent(policy_map_capacity=3)
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="render_env=True has no effect"):
        config.update_from_dict({"render_env": True})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config.copy().multi_agent(policy_map_capacity=3).update_from_dict(config.to_dict())


def test_events_of_the_old_stack_warn() -> None:
    class Old(RLlibCallback):
        def on_learn_on_batch(self, **kwargs: Any) -> None: ...

    with pytest.warns(UserWarning, match=r"Old\.on_learn_on_batch\(\) is never called.*learner_connector"):
        PPOConfig().callbacks(Old)


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
def test_what_has_no_effect_is_read_nowhere(name: str, sources: str) -> None:
    assert not re.search(rf"config\.{name}\b", sources), f"{name} has an effect: take it from the table"


@pytest.fixture(scope="module")
def sources() -> str:
    package = pathlib.Path(rllib.__file__).parent
    return "\n".join(path.read_text() for path in package.rglob("*.py"))


def test_names_of_the_old_stack_are_no_settings() -> None:
    for algorithm in ALGORITHMS:
        assert not vars(get_algorithm_config(algorithm)).keys() & REPLACED.keys()


def test_frozen_configs_do_not_change_but_copies_do() -> None:
    config = PPOConfig().environment("CartPole-v1", env_config={"a": [1]})
    config.freeze()
    with pytest.raises(AttributeError, match="copy"):
        config.training(lr=0.5)
    assert config.copy()._is_frozen
    copied = config.copy(copy_frozen=False).training(lr=0.5)
    copied.env_config["a"].append(2)
    assert (copied.lr, config.lr, config.env_config) == (0.5, 5e-5, {"a": [1]})


def test_dicts_go_back_and_forth() -> None:
    config = PPOConfig().environment("CartPole-v1").training(lambda_=0.9).multi_agent(policies={"a", "b"})
    settings = config.to_dict()
    assert settings["lambda"] == 0.9
    assert "algo_class" not in settings
    again = PPOConfig.from_dict(settings)
    assert again == config
    assert dict(config) == settings
    assert AlgorithmConfig.from_state(config.get_state()) == config


def test_configs_are_pickled() -> None:
    config = PPOConfig().callbacks(on_train_result=lambda **kwargs: None).training(lr=0.3)
    config.freeze()
    again = pickle.loads(cloudpickle.dumps(config))
    assert again.lr == 0.3
    with pytest.raises(AttributeError, match="frozen"):
        again.lr = 1


def test_update_from_dict_finds_slips_and_lets_new_names_in() -> None:
    with pytest.raises(TypeError, match="Did you mean 'num_env_runners'"):
        AlgorithmConfig().update_from_dict({"num_env_runner": 2})
    assert AlgorithmConfig().update_from_dict({"zebra_stripes": 2}).zebra_stripes == 2
    assert AlgorithmConfig().update_from_dict({"multiagent": {"policies": {"a"}}}).is_multi_agent


def test_as_a_mapping() -> None:
    config = PPOConfig()
    config["lambda"] = 0.5
    assert config["lambda"] == config.lambda_ == 0.5
    assert "gamma" in config
    assert "nothing" not in config
    assert config.get("nothing", 3) == 3
    with pytest.raises(KeyError):
        config["nothing"]


def test_repr_has_what_differs() -> None:
    assert repr(PPOConfig().training(lr=0.5)) == "PPOConfig(lr=0.5)"


def test_serialize_is_plain() -> None:
    import json

    settings = PPOConfig().environment(gymnasium.Env).serialize()
    assert "gymnasium" in json.loads(json.dumps(settings))["env"]


@given(st.integers(1, 5000), st.integers(0, 7), st.integers(1, 9), st.integers(0, 3))
def test_auto_fragments_make_up_a_train_batch(batch: int, runners: int, envs: int, learners: int) -> None:
    config = AlgorithmConfig().training(train_batch_size_per_learner=batch).learners(num_learners=learners)
    config.env_runners(num_env_runners=runners, num_envs_per_env_runner=envs, rollout_fragment_length="auto")
    total = batch * (learners or 1)
    assert config.total_train_batch_size == total
    lengths = [config.get_rollout_fragment_length(index) for index in range(1, runners + 1)] or [
        config.get_rollout_fragment_length()
    ]
    assert max(lengths) - min(lengths) <= 1
    assert max(lengths) <= config.get_rollout_fragment_length(0) or min(lengths) == 1
    sampled = sum(lengths) * envs
    assert total <= sampled < total + envs + runners * envs


def test_train_batches_must_fit_fragments() -> None:
    config = AlgorithmConfig().env_runners(num_env_runners=2, rollout_fragment_length=100)
    config.training(train_batch_size_per_learner=1000).validate_train_batch_size_vs_rollout_fragment_length()
    config.training(train_batch_size_per_learner=300)
    with pytest.raises(ValueError, match="train_batch_size_per_learner=400"):
        config.validate_train_batch_size_vs_rollout_fragment_length()


def test_settings_of_one_module() -> None:
    config = PPOConfig().multi_agent(policies={"a": None, "b": (None, None, None, {"gamma": 0.5})})
    config.rl_module(algorithm_config_overrides_per_module={"b": PPOConfig.overrides(lr=0.1)})
    assert config.get_config_for_module("a") is config
    assert (config.get_config_for_module("b").lr, config.get_config_for_module("b").gamma) == (0.1, 0.5)
    config.freeze()
    assert config.get_config_for_module("b") is config.get_config_for_module("b")
    with pytest.raises(KeyError, match="Did you mean 'lr'"):
        PPOConfig.overrides(lrr=1)
    assert PPOConfig.overrides(**{"lambda": 0.9}) == {"lambda": 0.9}
    with pytest.raises(ValueError, match="env_runners\\(num_env_runners"):
        PPOConfig.overrides(num_workers=1)


def test_policies_in_all_forms() -> None:
    config = AlgorithmConfig().multi_agent(policies=["a", "b"])
    assert list(config.policies) == ["a", "b"]
    assert config.is_multi_agent
    assert not AlgorithmConfig().is_multi_agent
    assert config.is_trained("b")
    assert not config.multi_agent(policies_to_train=["a"]).is_trained("b")
    assert config.multi_agent(policies_to_train=lambda module_id, batch: module_id == "b").is_trained("b")
    with pytest.raises(ValueError, match="folder"):
        AlgorithmConfig().multi_agent(policies=["a/b"])
    with pytest.raises(ValueError, match="empty"):
        AlgorithmConfig().multi_agent(policies=[])
    with pytest.raises(TypeError, match="collection"):
        AlgorithmConfig().multi_agent(policies="a")
    with pytest.raises(TypeError, match="PolicySpec"):
        AlgorithmConfig().multi_agent(policies={"a": 3})
    with pytest.raises(ValueError, match="old API stack"):
        PolicySpec(policy_class=int)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_env_runners": -1}, "num_env_runners"),
        ({"num_envs_per_env_runner": 0}, "num_envs_per_env_runner"),
        ({"batch_mode": "whole"}, "batch_mode"),
        ({"rollout_fragment_length": 0}, "rollout_fragment_length"),
        ({"ignore_env_runner_failures": True}, "both replaced and left out"),
        ({"create_local_env_runner": False}, "Nobody samples"),
        ({"grad_clip_by": "all"}, "grad_clip_by"),
        ({"grad_clip": 0}, "grad_clip"),
        ({"gamma": 1.1}, "gamma"),
        ({"minibatch_size": 64}, "minibatch_size"),
        ({"evaluation_duration": "auto", "evaluation_interval": 1}, "parallel"),
        ({"evaluation_duration": 0}, "evaluation_duration"),
        ({"evaluation_duration_unit": "days"}, "evaluation_duration_unit"),
        ({"evaluation_parallel_to_training": True}, "evaluation_num_env_runners"),
        ({"policies_to_train": ["c"]}, "policies_to_train"),
        ({"algorithm_config_overrides_per_module": {"c": {}}}, "overrides"),
        ({"num_learners": 2, "num_gpus_per_learner": 0.5}, "GPU"),
    ],
)
def test_settings_that_do_not_fit(changes: dict[str, Any], message: str) -> None:
    AlgorithmConfig().validate()
    config = AlgorithmConfig().update_from_dict(changes)
    with pytest.raises(ValueError, match=message):
        config.validate()
    config.experimental(_validate_config=False).validate()


def test_evaluation_has_its_own_settings() -> None:
    assert AlgorithmConfig().get_evaluation_config_object() is None
    config = PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=2)
    config.evaluation(
        evaluation_interval=1,
        evaluation_num_env_runners=3,
        evaluation_sample_timeout_s=7,
        evaluation_config=PPOConfig.overrides(explore=False, env_config={"x": 1}),
    )
    found = config.get_evaluation_config_object()
    assert found is not None
    assert (found.num_env_runners, found.explore, found.env_config) == (3, False, {"x": 1})
    assert (found.batch_mode, found.sample_timeout_s, found.in_evaluation) == ("complete_episodes", 7, True)
    assert (config.num_env_runners, config.explore, config.in_evaluation) == (2, True, False)
    config.evaluation(
        evaluation_config=PPOConfig().env_runners(explore=False), evaluation_duration_unit="timesteps"
    )
    found = config.get_evaluation_config_object()
    assert found is not None
    assert (found.explore, found.batch_mode, found.num_env_runners) == (False, "truncate_episodes", 3)


def test_atari_is_known_by_its_name() -> None:
    assert AlgorithmConfig().environment("ale_py:ALE/Pong-v5").is_atari
    assert not AlgorithmConfig().environment("CartPole-v1").is_atari
    assert AlgorithmConfig().environment("CartPole-v1", is_atari=True).is_atari


def test_building_needs_a_class() -> None:
    with pytest.raises(ValueError, match="belongs to no algorithm"):
        AlgorithmConfig().build_algo()
