"""An environment in another thread that samples by itself and talks to the runner over TCP."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from runtime.rllib.algorithms.ppo import PPOConfig
from runtime.rllib.env.external.client import RLlinkClient
from runtime.rllib.env.external.env_runner_server_for_external_inference import (
    EnvRunnerServerForExternalInference,
)
from runtime.rllib.env.single_agent_episode import SingleAgentEpisode

SPACES = gymnasium.make("CartPole-v1")


def config_of(**env_config: Any) -> PPOConfig:
    config: PPOConfig = (
        PPOConfig()
        .environment(
            observation_space=SPACES.observation_space,
            action_space=SPACES.action_space,
            env_config={"port": 0} | env_config,
        )
        .env_runners(env_runner_cls=EnvRunnerServerForExternalInference, num_env_runners=0)
        .rl_module(model_config={"fcnet_hiddens": [8]})
        .training(train_batch_size_per_learner=64, minibatch_size=32, num_epochs=1)
    )
    return config


@pytest.fixture
def runner() -> Iterator[EnvRunnerServerForExternalInference]:
    server = EnvRunnerServerForExternalInference(config=config_of())
    yield server
    server.stop()
    assert not server._listener.is_alive()


def episode(steps: int, done: bool = True, **more: Any) -> SingleAgentEpisode:
    made = SingleAgentEpisode(**more)
    made.add_env_reset(np.zeros(4, np.float32), {})
    for step in range(steps):
        made.add_env_step(
            np.full(4, step + 1, np.float32),
            np.int64(step % 2),
            1.0,
            {},
            terminated=done and step == steps - 1,
            extra_model_outputs={
                "action_logp": np.float32(-0.5),
                "action_dist_inputs": np.zeros(2, np.float32),
            },
        )
    return made


def test_episodes_come_as_they_were(runner: EnvRunnerServerForExternalInference) -> None:
    with RLlinkClient(port=runner.port, timeout_s=10) as client:
        first = episode(3, done=False)
        client.send_episodes([episode(5), first])
        got = runner.sample()
        while len(got) < 2:
            got += runner.sample()
        assert [len(one) for one in got] == [5, 3]
        assert got[0].is_terminated
        assert got[1].id_ == first.id_
        np.testing.assert_array_equal(got[1].get_observations(), first.get_observations())
        assert got[1].get_extra_model_outputs("action_logp").dtype == np.float32
        got[1].set_rewards(new_data=[100.0] * 3)  # as a connector of learners may
        rest = first.cut()
        outputs = {"action_logp": np.float32(-1), "action_dist_inputs": np.ones(2, np.float32)}
        rest.add_env_step(
            np.ones(4, np.float32), np.int64(1), 2.0, {}, truncated=True, extra_model_outputs=outputs
        )
        client.send_episodes([rest])
        collected = runner.collect(deadline_s=10)
        assert collected.env_steps == 1
        assert collected.rollouts["default_policy"].segments.truncated.tolist() == [True]
        assert collected.rollouts["default_policy"].segments.t_started.tolist() == [3]
    from runtime.rllib.utils.metrics.metrics_logger import MetricsLogger

    logger = MetricsLogger(root=True)
    logger.aggregate([collected.metrics])
    assert logger.peek("episode_len_max") == 5
    assert logger.peek("episode_return_min") == logger.peek("episode_return_max") == 5.0, "3 and then 2"
    assert logger.peek("num_env_steps_sampled") == 9


def test_clients_get_configuration_and_weights(runner: EnvRunnerServerForExternalInference) -> None:
    with RLlinkClient(port=runner.port, timeout_s=10) as client:
        assert client.get_config().train_batch_size_per_learner == 64
        state = client.get_state()
        assert state["weights_seq_no"] == 0
        for name, value in runner.module.get_state().items():
            np.testing.assert_array_equal(state["rl_module"][name], value)


def test_on_policy_clients_wait_for_new_weights(runner: EnvRunnerServerForExternalInference) -> None:
    weights = {name: value + 1 for name, value in runner.module.get_state().items()}
    runner.set_state({"rl_module": weights, "weights_seq_no": 1})
    got: list[Any] = []

    def play() -> None:
        with RLlinkClient(port=runner.port, timeout_s=10) as client:
            got.append(client.send_episodes_and_get_state([episode(4)]))

    thread = threading.Thread(target=play)
    thread.start()
    assert sum(map(len, runner.sample())) == 4
    assert not got
    runner.set_state({"rl_module": {"default_policy": weights}, "weights_seq_no": 2})
    thread.join(10)
    assert got[0]["weights_seq_no"] == 2


def test_a_client_may_come_again(runner: EnvRunnerServerForExternalInference) -> None:
    for size in (2, 3):
        with RLlinkClient(port=runner.port, timeout_s=10) as client:
            client.send_episodes([episode(size)])
            assert [len(one) for one in runner.sample()] == [size]
    runner.assert_healthy()


def test_without_episodes_in_time_there_are_none(runner: EnvRunnerServerForExternalInference) -> None:
    assert runner.collect(deadline_s=0.01).env_steps == 0
    runner.stop()
    with pytest.raises(ConnectionError, match="No environment runner listens"):
        RLlinkClient(port=runner.port, timeout_s=0.1)
    with pytest.raises(AssertionError, match="does not listen"):
        runner.assert_healthy()


def test_the_port_follows_from_the_runners_number() -> None:
    free = EnvRunnerServerForExternalInference(config=config_of())
    base = free.port
    free.stop()
    server = EnvRunnerServerForExternalInference(config=config_of(port=base - 1), worker_index=1)
    assert server.port == base
    server.stop()


def test_spaces_must_be_given() -> None:
    with pytest.raises(ValueError, match="observation_space"):
        EnvRunnerServerForExternalInference(config=PPOConfig().environment(env_config={"port": 0}))


def test_an_algorithm_learns_from_an_external_environment() -> None:
    algo = config_of().build_algo()
    port = algo.env_runner.port
    sequence: list[int] = []
    stop = threading.Event()

    def play() -> None:
        with contextlib.suppress(ConnectionError), RLlinkClient(port=port, timeout_s=30) as client:
            state = client.get_state()
            while not stop.is_set():
                state = client.send_episodes_and_get_state([episode(32), episode(32)])
                sequence.append(state["weights_seq_no"])

    thread = threading.Thread(target=play)
    thread.start()
    before = algo.get_module().get_state()
    try:
        for _ in range(3):
            result = algo.train()
    finally:
        stop.set()
        algo.stop()
        thread.join(30)
    assert result["env_runners"]["num_env_steps_sampled_lifetime"] == 192
    assert sequence[:2] == sorted(sequence[:2])
    after = algo.get_module().get_state()
    assert any(not np.array_equal(before[name], after[name]) for name in before)
