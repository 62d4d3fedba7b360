"""The command line of example scripts, and experiments run from it."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from runtime.rllib.algorithms.ppo import PPOConfig
from runtime.rllib.examples.utils import (
    add_rllib_example_script_args,
    run_rllib_example_script_experiment,
    should_stop,
)


def config() -> PPOConfig:
    return (
        PPOConfig()
        .environment("CartPole-v1")
        .training(train_batch_size_per_learner=64, num_epochs=1, minibatch_size=64)
    )


def arguments(*given: str):  # type: ignore[no-untyped-def]
    return add_rllib_example_script_args(default_iters=2).parse_args(given)


def test_options_have_their_defaults() -> None:
    args = arguments()
    assert (args.algo, args.stop_iters, args.stop_reward, args.num_agents) == ("PPO", 2, 100.0, 0)
    assert args.num_env_runners is None
    assert arguments("--evaluation-duration=auto").evaluation_duration == "auto"


def test_options_change_the_configuration() -> None:
    base = config()
    args = arguments(
        "--no-tune",
        "--stop-iters=1",
        "--num-env-runners=0",
        "--evaluation-interval=1",
        "--evaluation-duration=1",
    )
    results = run_rllib_example_script_experiment(base, args)
    assert results["training_iteration"] == 1
    assert base.num_env_runners == 0
    assert results["evaluation"]["env_runners"]["num_episodes"] >= 1


def test_a_loop_ends_at_the_first_value_reached(capsys: pytest.CaptureFixture[str]) -> None:
    args = arguments("--no-tune", "--stop-iters=5", "--num-env-runners=0")
    stop = {"env_runners/num_env_steps_sampled_lifetime": 1, "training_iteration": 5}
    results = run_rllib_example_script_experiment(config(), args, stop=stop)
    assert results["training_iteration"] == 1
    assert (
        "Stop criterion (env_runners/num_env_steps_sampled_lifetime=1) fulfilled!" in capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("results", "stops"),
    [
        ({"a": {"b": 3}}, True),
        ({"a": {"b": 1}}, False),
        ({"a": {"b": float("nan")}}, False),
        ({"a": 3}, False),
    ],
)
def test_paths_into_results_stop(results: dict[str, object], stops: bool) -> None:
    assert should_stop({"a/b": 2}, results, keep_ray_up=True) is stops


@pytest.mark.parametrize("option", ["--old-api-stack", "--num-gpus=1"])
def test_options_of_the_old_stack_are_refused(option: str) -> None:
    with pytest.raises(ValueError, match=option.split("=")[0]):
        run_rllib_example_script_experiment(config(), arguments(option))
