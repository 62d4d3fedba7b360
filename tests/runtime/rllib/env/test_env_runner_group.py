"""Environment runners as actors: sampling in parallel, kills, slow environments, weights."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from runtime.exceptions import RayError, RayTaskError
from runtime.rllib.algorithms.ppo import PPOConfig
from runtime.rllib.connectors.env_to_module import MeanStdFilter
from runtime.rllib.env._runner_actors import EnvRunnerFailedError
from runtime.rllib.env.env_runner_group import EnvRunnerGroup
from runtime.rllib.env.multi_agent_env import make_multi_agent
from runtime.rllib.execution.rollout_ops import synchronous_parallel_sample
from tests.runtime.rllib.env.counting import Counter, Slow
from tests.runtime.rllib.env.settings import Settings
from tests.under_test import ray

pytestmark = pytest.mark.usefixtures("session")


class Weights:
    """Something that has a module's weights, as a learner group."""

    def __init__(self, logits: Any) -> None:
        self.logits = np.asarray(logits, np.float32)

    def get_weights(self, policies: Any = None, **_: Any) -> dict[str, Any]:
        return {"default_policy": {"logits": self.logits}}


@pytest.fixture(scope="module")
def group(session: None) -> Iterator[EnvRunnerGroup]:
    """Two runners with two environments each."""
    made = EnvRunnerGroup(config=Settings(lambda _: Counter(), num_env_runners=2))
    yield made
    made.stop()


def wait_for(group: EnvRunnerGroup, count: int) -> None:
    while group.num_healthy_remote_workers() < count:  # the test's own timeout ends it
        group._actors.pump(0.1)


def test_functions_reach_runners_that_still_start() -> None:
    group = EnvRunnerGroup(config=Settings(lambda _: Counter(), num_env_runners=2))
    try:
        assert group.num_healthy_remote_workers() == 0
        numbers = group.foreach_env_runner(lambda runner: runner.worker_index, local_env_runner=False)
        assert numbers == [1, 2]
    finally:
        group.stop()


def test_runners_share_the_work(group: EnvRunnerGroup) -> None:
    wait_for(group, 2)
    collected = group.collect(env_steps=40)
    assert [each.env_steps for each in collected] == [20, 20]
    assert sum(each.env_steps for each in group.collect()) == 64
    episodes = [each.rollouts["default_policy"].segments for each in group.collect(episodes=6)]
    assert sum(len(each) for each in episodes) == 6
    assert all((each.terminated | each.truncated).all() for each in episodes)


def test_functions_and_methods_of_all_runners(group: EnvRunnerGroup) -> None:
    wait_for(group, 2)
    assert group.foreach_env_runner("ping", local_env_runner=False) == ["pong"] * 2
    assert group.foreach_env_runner(lambda runner: runner.worker_index) == [0, 1, 2]
    assert group.foreach_env_runner(lambda runner, n: n, kwargs={"n": 5}, remote_worker_ids=[2]) == [5, 5]
    each = [lambda runner: "one", lambda runner: "two"]
    assert group.foreach_env_runner(each, local_env_runner=False) == ["one", "two"]
    refs = group.foreach_env_runner("ping", local_env_runner=False, return_obj_refs=True)
    assert ray.get(refs) == ["pong"] * 2
    assert group.foreach_env(lambda env: env.unwrapped.lengths[0]) == [[], [3, 3], [3, 3]]
    with pytest.raises(RayTaskError, match="zero"):
        group.foreach_env_runner(lambda runner: 1 / 0, local_env_runner=False)
    assert group.num_remote_workers() == group.num_healthy_remote_workers() == 2
    assert group.healthy_env_runner_ids() == [1, 2]


def test_calls_without_waiting(group: EnvRunnerGroup) -> None:
    wait_for(group, 2)
    assert group.foreach_env_runner_async("ping", tag="a") == 2
    assert group.foreach_env_runner_async("ping", tag="a") == 0  # one in flight per runner is allowed
    assert group.foreach_env_runner_async("ping", tag="b", remote_worker_ids=[1]) == 1
    found: list[Any] = []
    while len(found) < 2:
        found += group.fetch_ready_async_reqs(tags="a", timeout_seconds=10)
    assert sorted(found) == [(1, "pong"), (2, "pong")]
    assert group.fetch_ready_async_reqs(tags=["b"], timeout_seconds=10) == [(1, "pong")]
    assert group.foreach_env_runner_async_fetch_ready("ping", timeout_seconds=10) != []
    group.fetch_ready_async_reqs(timeout_seconds=10)


def test_sampling_without_waiting(group: EnvRunnerGroup) -> None:
    wait_for(group, 2)
    assert group.collect_async(env_steps=10) == 2
    assert group.collect_async(env_steps=10) == 0
    found: list[Any] = []
    while len(found) < 2:
        found += group.ready(timeout_s=10)
    assert sorted(number for number, _ in found) == [1, 2]
    assert all(each.env_steps == 10 for _, each in found)
    assert group.ready() == []


def test_episodes_of_all_runners(group: EnvRunnerGroup) -> None:
    wait_for(group, 2)
    episodes, metrics = synchronous_parallel_sample(worker_set=group, max_env_steps=100, _return_metrics=True)
    assert sum(map(len, episodes)) >= 100
    assert len(metrics) >= 2
    assert len(synchronous_parallel_sample(worker_set=group, concat=False)) == 2


def test_weights_reach_all_runners_and_those_that_come_later(group: EnvRunnerGroup) -> None:
    wait_for(group, 2)
    group.sync_weights(from_worker_or_learner_group=Weights([1.0, 2.0]), timeout_seconds=None)
    assert [w.tolist() for w in group.foreach_env_runner(lambda r: r.module.logits)] == [[1, 2]] * 3
    assert {each.weights_seq for each in group.collect(env_steps=20)} == {group._weights_seq}
    # Late results with old weights are left out.
    group.collect_async(env_steps=10)
    group._actors.pump(None)
    group.sync_weights(from_worker_or_learner_group=Weights([3.0, 4.0]), timeout_seconds=None)
    collected = group.collect(env_steps=40, max_weights_age=0)
    assert {each.weights_seq for each in collected} == {group._weights_seq}
    assert sum(each.env_steps for each in collected) >= 40


def test_a_killed_runner_is_replaced_while_the_others_sample(group: EnvRunnerGroup) -> None:
    wait_for(group, 2)
    group.sync_weights(from_worker_or_learner_group=Weights([5.0, 6.0]))
    first, _ = group.foreach_env_runner(lambda runner: os.getpid(), local_env_runner=False)
    os.kill(first, signal.SIGKILL)
    collected = group.collect(env_steps=200)
    assert sum(each.env_steps for each in collected) >= 200
    wait_for(group, 2)
    assert group.probe_unhealthy_env_runners() == [1]
    assert group.probe_unhealthy_env_runners() == []
    assert group.num_remote_worker_restarts() == 1
    assert group.foreach_env_runner(lambda runner: runner.recreated_worker, local_env_runner=False) == [
        True,
        False,
    ]
    logits = group.foreach_env_runner(lambda runner: runner.module.logits.tolist(), local_env_runner=False)
    assert logits == [[5.0, 6.0]] * 2


def test_a_slow_environment_does_not_hold_the_others() -> None:
    config = Settings(
        Slow, num_env_runners=2, env_config={"seconds": 30.0, "slow": 1}, sample_timeout_s=100.0
    )
    slow = EnvRunnerGroup(config=config)
    try:
        wait_for(slow, 2)
        collected = slow.collect(env_steps=40)
        assert sum(each.env_steps for each in collected) >= 40
        assert all(each.env_steps for each in collected)
        # It still samples, and is not asked again; its share goes to the other one.
        assert sum(each.env_steps for each in slow.collect(env_steps=40)) >= 40
        assert slow.num_healthy_remote_workers() == 2
    finally:
        slow.stop()


def test_what_connectors_have_learnt_is_merged() -> None:
    def filtered(*args: Any, **kwargs: Any) -> Any:
        return MeanStdFilter()

    config = Settings(lambda _: Counter(), num_env_runners=2, _env_to_module_connector=filtered)
    group = EnvRunnerGroup(config=config)
    try:
        wait_for(group, 2)
        steps = sum(each.env_steps for each in group.collect(env_steps=40))
        group.sync_weights(from_worker_or_learner_group=Weights([1.0, 2.0]), timeout_seconds=None)
        counts = group.foreach_env_runner(
            lambda r: next(iter(r.get_state()["env_to_module_connector"].values()))[None]["running_stats"][0][
                "count"
            ]
        )
        assert len(set(counts)) == 1
        assert counts[0] > steps  # observations of resets are more
    finally:
        group.stop()


def test_a_group_grows() -> None:
    group = EnvRunnerGroup(config=Settings(lambda _: Counter(), num_env_runners=1))
    try:
        group.add_workers(1, validate=True)
        assert group.healthy_env_runner_ids() == [1, 2]
        assert len(group.collect(env_steps=8)) == 2
        assert group.num_in_flight_async_reqs() == 0
    finally:
        group.stop()


def test_a_runner_that_cannot_be_made_fails_the_group_with_the_reason() -> None:
    def broken(context: Any) -> Any:
        raise OSError("no such simulator")

    group = EnvRunnerGroup(config=Settings(broken, num_env_runners=1))
    with pytest.raises(EnvRunnerFailedError, match="no such simulator"):
        group.get_spaces()
    group.stop()


def test_errors_are_raised_at_once_or_after_some_restarts() -> None:
    class Broken(Counter):
        def step(self, action: Any) -> Any:
            raise RuntimeError("broken step")

    for restart, error in ((False, RayTaskError), (True, EnvRunnerFailedError)):
        config = Settings(lambda _: Broken(), num_env_runners=1, restart_failed_env_runners=restart)
        group = EnvRunnerGroup(config=config)
        with pytest.raises(error, match="broken step"):
            group.collect(env_steps=10)
        if restart:  # it stays failed
            with pytest.raises(error, match="broken step"):
                group.collect(env_steps=10)
        group.stop()


def test_without_remote_runners_the_local_one_samples() -> None:
    group = EnvRunnerGroup(config=Settings(lambda _: Counter()))
    (collected,) = group.collect(env_steps=10)
    assert collected.env_steps == 10
    group.sync_weights(from_worker_or_learner_group=Weights([7.0, 8.0]))
    assert group.local_env_runner.module.logits.tolist() == [7.0, 8.0]
    assert group.num_healthy_env_runners() == 1
    group.stop()


class Closes(Counter):
    """Leaves a file when it is closed."""

    def __init__(self, context: Any) -> None:
        super().__init__()
        self.path = context["path"]

    def close(self) -> None:
        with open(os.path.join(self.path, str(os.getpid())), "w"):
            pass


def test_environments_of_actors_are_closed(tmp_path: Any) -> None:
    config = Settings(Closes, env_config={"path": str(tmp_path)}, num_env_runners=2)
    group = EnvRunnerGroup(config=config)
    pids = group.foreach_env_runner(lambda runner: os.getpid(), local_env_runner=False)
    assert len(pids) == 2, "runners are called while they start, too"
    group.stop()
    assert sorted(os.listdir(tmp_path)) == sorted(map(str, pids))
    with pytest.raises(RayError, match="stopped"):
        group.collect(env_steps=10)


class Broken(Counter):
    """An environment that only actors cannot make."""

    def __init__(self, context: Any) -> None:
        super().__init__()
        if context.worker_index == context["broken"]:
            raise ValueError("no such simulator")


def test_errors_of_environments_come_when_runners_are_validated() -> None:
    spaces = {"observation_space": Counter.observation_space, "action_space": Counter.action_space}
    group = EnvRunnerGroup(config=Settings(Broken, env_config={"broken": 2}, num_env_runners=2, **spaces))
    assert group.get_spaces()["default_policy"][1] == Counter.action_space  # asks no runner
    with pytest.raises(EnvRunnerFailedError, match="no such simulator"):
        group.validate()
    group.stop()


def test_validation_does_not_wait_for_runners_that_there_is_no_room_for(
    group: EnvRunnerGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime.rllib.env.env_runner_group.VALIDATION_S", 0.05)
    room = int(ray.cluster_resources()["CPU"]) - group.num_remote_env_runners()
    config = Settings(Broken, env_config={"broken": None}, num_env_runners=2, num_cpus_per_env_runner=room)
    tested = EnvRunnerGroup(config=config)
    tested.validate()
    assert len(tested.healthy_env_runner_ids()) == 1
    tested.stop()


def test_episodes_of_runners_that_still_start() -> None:
    group = EnvRunnerGroup(config=Settings(lambda _: Counter(), num_env_runners=1))
    assert sum(map(len, synchronous_parallel_sample(worker_set=group, max_env_steps=10))) >= 10
    group.stop()


def test_connectors_of_several_agents_are_merged() -> None:
    def filtered(*args: Any, **kwargs: Any) -> Any:
        return MeanStdFilter(multi_agent=True)

    config = (
        PPOConfig()
        .environment(make_multi_agent("CartPole-v1"), env_config={"num_agents": 2})
        .env_runners(num_env_runners=1, env_to_module_connector=filtered)
        .multi_agent(policies={"p"}, policy_mapping_fn=lambda agent, episode, **kwargs: "p")
        .rl_module(model_config={"fcnet_hiddens": [4]})
    )
    group = EnvRunnerGroup(config=config)
    try:
        wait_for(group, 1)
        group.collect(env_steps=20)
        group.sync_env_runner_states()
        state = next(iter(group.local_env_runner.get_state()["env_to_module_connector"].values()))
        assert min(state[agent]["running_stats"][0]["count"] for agent in (0, 1)) > 5
    finally:
        group.stop()


def test_nothing_is_waited_for_if_nothing_samples(group: EnvRunnerGroup) -> None:
    wait_for(group, 2)
    assert group.ready(None) == []
