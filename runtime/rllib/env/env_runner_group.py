"""The environment runners of an algorithm: a local one, and remote ones that sample in parallel."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import runtime as ray
from runtime.exceptions import RayError, RayTaskError
from runtime.rllib._core.runner_group import Round
from runtime.rllib._core.types import Config
from runtime.rllib.core import (
    COMPONENT_ENV_TO_MODULE_CONNECTOR,
    COMPONENT_MODULE_TO_ENV_CONNECTOR,
    COMPONENT_RL_MODULE,
)
from runtime.rllib.env._connectors import has_own_pipelines
from runtime.rllib.env._runner_actors import COLLECT, SYNC, Ended, RunnerActors, numbers_of
from runtime.rllib.env._runner_calls import RunnerCalls
from runtime.rllib.env._vector import env_creator as creator_of
from runtime.rllib.env._vector import known_spaces
from runtime.rllib.env.env_runner import Collected, EnvRunner
from runtime.rllib.utils import metrics as names

VALIDATION_S = 5.0
CONNECTORS = (COMPONENT_ENV_TO_MODULE_CONNECTOR, COMPONENT_MODULE_TO_ENV_CONNECTOR)


class EnvRunnerGroup(RunnerCalls):
    """One local runner (number 0) and n remote ones (1 to n).

    Remote runners that die are replaced while the others go on, as far as `config.fault_tolerance` allows. A new one
    gets the weights that were sent last before its first call.
    """

    def __init__(
        self,
        *,
        config: Config,
        env_creator: Callable[[Any], Any] | None = None,
        local_env_runner: bool = True,
        num_env_runners: int | None = None,
        tune_trial_id: str | None = None,
        spaces: Mapping[str, tuple[Any, Any]] | None = None,
    ) -> None:
        """Starts the remote runners; does not wait for them.

        Args:
            config: an `AlgorithmConfig`.
            env_creator: what makes one environment of its `EnvContext`; by default what `config.env` says.
            local_env_runner: whether there may be a local runner. With remote ones it is made when it is first used,
                and has no environment unless `config.create_env_on_local_worker`.
            num_env_runners: of remote runners; by default `config.num_env_runners`.
            tune_trial_id: of the trial that the algorithm runs in.
            spaces: see `get_spaces`, for a group whose configuration has no environment.
        """
        self._config = config
        self._has_local = local_env_runner
        self._local: EnvRunner | None = None
        self._spaces: dict[str, tuple[Any, Any]] | None = None if spaces is None else dict(spaces)
        self._weights_seq = 0
        self._paces: dict[str, float | None] = {}  # see Round
        self._state_ref: Any = None  # what new runners are told first
        self._cannot_fail = False  # its environment was made here, and is one of gymnasium's
        self._creator = env_creator
        if env_creator is None and config.env is not None and not config.is_multi_agent:
            # Names are registered in this process only, so that remote runners get the function.
            self._creator = creator_of(config)
        count = config.num_env_runners if num_env_runners is None else num_env_runners
        self._count = count
        self._kwargs: dict[str, Any] = {"num_workers": count, "tune_trial_id": tune_trial_id}
        self._cls = config.env_runner_cls or _default_class(config)
        self._actors = RunnerActors(self._cls, config, self._kwargs_of, lambda: self._state_ref)
        self._actors.add(count)
        if not count and local_env_runner:
            self._make_local()

    def _kwargs_of(self, number: int) -> dict[str, Any]:
        kwargs = {**self._kwargs, "worker_index": number}
        if self._creator is not None:
            kwargs["env_creator"] = self._creator
        member = self._actors.runners.members.get(number) if number else None
        if member is not None and member.attempt:
            kwargs["recreated_worker"] = True
        return kwargs

    def _make_local(self) -> EnvRunner:
        kwargs = self._kwargs_of(0)
        if self._count:
            kwargs["spaces"] = self.get_spaces()
        local = self._local = self._cls(config=self._config, **kwargs)
        if self._state_ref is not None:
            local.set_state(ray.get(self._state_ref))
        return local

    # ------------------------------------------------------------ facts

    @property
    def weights_seq(self) -> int:
        """The number of the latest weights, which `Collected.weights_seq` of later samples has."""
        return self._weights_seq

    @property
    def config(self) -> Config:
        """The configuration of runners that are started from now on."""
        return self._config

    @config.setter
    def config(self, config: Config) -> None:
        self._config = config
        self._actors.use(config)

    @property
    def local_env_runner(self) -> Any:
        """The local runner; None if there is none."""
        if self._local is None and self._has_local:
            self._make_local()
        return self._local

    def get_spaces(self) -> dict[str, tuple[Any, Any]]:
        """Pairs of observation and action space, as `EnvRunner.get_spaces` gives them."""
        if self._spaces is None:
            if self._local is not None and (self._local.env is not None or not self._count):
                self._spaces = self._local.get_spaces()
            elif self._count:
                self._spaces = self._known_spaces()
                if self._spaces is not None:
                    self._cannot_fail = self._config.observation_space is None
                    return self._spaces
                number = self._actors.wait_for_one(self._config.env_runner_restore_timeout_s)
                asked = self._actors.handle(number).get_spaces.remote()
                self._spaces = ray.get(asked, timeout=self._config.env_runner_restore_timeout_s)
            else:
                raise ValueError(
                    "There is no environment to ask for its spaces: give them in the configuration"
                )
        return self._spaces

    def _known_spaces(self) -> dict[str, tuple[Any, Any]] | None:
        """Those that need no runner."""
        config = self._config
        if config.is_multi_agent or config.env is None or has_own_pipelines(config):
            return None
        return known_spaces(config, self._creator)

    def healthy_env_runner_ids(self) -> list[int]:
        """The numbers of the remote runners that are up."""
        self._actors.pump()
        return self._actors.runners.ready

    healthy_worker_ids = healthy_env_runner_ids

    def num_remote_env_runners(self) -> int:
        """How many remote runners there are, up or not."""
        return self._count - self._actors.runners.removed

    num_remote_workers = num_remote_env_runners

    def num_healthy_remote_env_runners(self) -> int:
        """How many remote runners are up."""
        return len(self.healthy_env_runner_ids())

    num_healthy_remote_workers = num_healthy_remote_env_runners

    def num_healthy_env_runners(self) -> int:
        """How many runners are up, the local one included."""
        return self.num_healthy_remote_env_runners() + self._has_local

    num_healthy_workers = num_healthy_env_runners

    def num_in_flight_async_reqs(self, tag: str | None = None) -> int:
        """How many asynchronous calls have not ended."""
        return self._actors.in_flight(tag)

    def num_remote_worker_restarts(self) -> int:
        """How many remote runners were replaced."""
        return self._actors.runners.restarts

    @property
    def num_env_runners_dropped_lifetime(self) -> int:
        """How many remote runners were given up."""
        return self._actors.runners.removed

    # ------------------------------------------------------------ sampling

    def collect(
        self,
        *,
        env_steps: int | None = None,
        episodes: int | None = None,
        timeout_s: float | None = None,
        max_weights_age: int | None = None,
        random_actions: bool = False,
        explore: bool | None = None,
    ) -> list[Collected]:
        """Samples so many steps or episodes in all, in parallel; by default one fragment per runner.

        Does not wait for a runner that is much slower than the others, or for one that died: the others sample its
        share. What it gives later counts for the next call.

        Args:
            env_steps: in all; a few more may come.
            episodes: in all.
            timeout_s: seconds after which to return what there is; by default `config.sample_timeout_s`.
            max_weights_age: what a runner gives late is dropped if its weights are more than so many `sync_weights`
                old; None: never.
            random_actions, explore: see `SingleAgentEnvRunner.sample`.

        Raises:
            EnvRunnerFailedError: a runner failed and is not to be replaced.
        """
        how = {"random_actions": random_actions, "explore": explore}
        if not self._count:
            return [self._local_runner().collect(env_steps=env_steps, episodes=episodes, **how)]
        if timeout_s is None:
            timeout_s = self._config.sample_timeout_s
        self._actors.wait_for_one(self._config.env_runner_restore_timeout_s)  # that is no time of sampling
        now = time.monotonic()
        unit = "env_steps" if episodes is None else "episodes"
        wanted = episodes if episodes is not None else env_steps
        if wanted is None:
            unit, wanted = self._fragments()
        work, results = Round(wanted, now, timeout_s, self._paces.get(unit)), list[Collected]()
        actors = self._actors
        while True:
            now = time.monotonic()
            for ended in actors.take((COLLECT,)):
                self._took(ended, work, unit, results, max_weights_age)
            if work.is_over(now):
                self._paces[unit] = work.pace
                return results
            if not actors.runners.some_left():
                raise RayError("The environment runners were stopped while they sampled")
            free = [number for number in actors.runners.ready if not actors.called(number, COLLECT)]
            for number, amount in work.calls(free, now):
                actors.call(
                    number, "collect", COLLECT, **{unit: amount}, **how, deadline_s=work.time_to_sample(now)
                )
            actors.pump(work.look_in(now))

    def _fragments(self) -> tuple[str, int]:
        config = self._config
        runners = max(1, self.num_remote_env_runners())
        if config.batch_mode == "complete_episodes":
            return "episodes", runners * config.num_envs_per_env_runner
        steps = config.get_rollout_fragment_length(worker_index=1) * config.num_envs_per_env_runner
        return "env_steps", runners * steps

    def _took(
        self, ended: Ended, work: Round, unit: str, results: list[Collected], max_weights_age: int | None
    ) -> None:
        number = ended.call.number
        if ended.error is not None:
            work.lost(number)
            self._sampling_failed(ended)
            return
        collected: Collected = ended.value
        self._actors.runners.worked(number)
        age = self._weights_seq - collected.weights_seq
        if max_weights_age is not None and age > max_weights_age:
            work.lost(number)
            return
        amount = collected.env_steps
        if unit == "episodes":
            rollouts = collected.rollouts.values()
            amount = sum(int((r.segments.terminated | r.segments.truncated).sum()) for r in rollouts)
        work.took(number, amount, time.monotonic())
        results.append(collected)

    def _sampling_failed(self, ended: Ended) -> None:
        """A runner whose environment or module raised an error is replaced, like one that died."""
        error = ended.error
        assert error is not None
        if isinstance(error, RayTaskError):
            if not (self._config.restart_failed_env_runners or self._config.ignore_env_runner_failures):
                raise error
            self._actors.fail(ended.call.number, ended.call.attempt, str(error))

    def collect_async(self, *, env_steps: int | None = None, episodes: int | None = None, **how: Any) -> int:
        """Has remote runners sample as far as `config.max_requests_in_flight_per_env_runner` allows; does not wait.

        Args:
            env_steps, episodes: per call; by default a fragment.
            how: see `collect`.

        Returns:
            The number of calls.
        """
        self._actors.pump()
        most = self._config.max_requests_in_flight_per_env_runner
        made = 0
        for number in self._actors.runners.ready:
            while self._actors.called(number, COLLECT) < most:
                self._actors.call(number, "collect", COLLECT, env_steps=env_steps, episodes=episodes, **how)
                made += 1
        return made

    def ready(self, timeout_s: float | None = 0.0, *, return_obj_refs: bool = False) -> list[tuple[int, Any]]:
        """What runners have sampled since: pairs of a runner's number and its `Collected`, or the reference to it.

        Args:
            timeout_s: how long to wait for the first one; None: as long as it takes, if any samples.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            self._actors.pump(0.0)
            results = []
            for ended in self._actors.take((COLLECT,)):
                if ended.error is not None:
                    self._sampling_failed(ended)
                else:
                    self._actors.runners.worked(ended.call.number)
                    results.append((ended.call.number, ended.ref if return_obj_refs else ended.value))
            if results or left == 0 or (left is None and not self._actors.in_flight(COLLECT)):
                return results
            self._actors.pump(left)

    # ------------------------------------------------------------ weights and states

    def sync_weights(
        self,
        policies: Collection[str] | None = None,
        from_worker_or_learner_group: Any = None,
        to_worker_indices: Collection[int] | None = None,
        global_vars: Mapping[str, Any] | None = None,
        timeout_seconds: float | None = 0.0,
        inference_only: bool = False,
    ) -> None:
        """Sends weights to all runners, the local one included: they are put into the object store once. Merges the
        states of the connectors, too, if the configuration has some.

        Args:
            policies: the modules; by default all.
            from_worker_or_learner_group: what has the weights; by default the local runner.
            to_worker_indices: the remote runners; by default all. Others get them with the next call.
            global_vars: not used; for callers of Ray's API.
            timeout_seconds: how long to wait until the runners have them; 0: not at all, as they have them before their
                next call anyway; None: as long as it takes.
            inference_only: whether to leave out what only learners use.
        """
        source = (
            self.local_env_runner if from_worker_or_learner_group is None else from_worker_or_learner_group
        )
        self._weights_seq += 1
        state = {
            COMPONENT_RL_MODULE: _weights_of(source, policies, inference_only),
            names.WEIGHTS_SEQ_NO: self._weights_seq,
        }
        if self._local is not None and self._local is not source:
            self._local.set_state(state)
        if self._count:
            self._state_ref = ray.put(state)
            self._send(self._state_ref, to_worker_indices, timeout_seconds)
            if not self._config.in_evaluation:
                self.sync_env_runner_states()  # what connectors have learnt, too

    def sync_env_runner_states(
        self,
        *,
        config: Config | None = None,
        from_worker: Any = None,
        env_steps_sampled: int | None = None,
        connector_states: Sequence[Mapping[str, Any]] | None = None,
        rl_module_state: Mapping[str, Any] | None = None,
        env_runner_indices_to_update: Collection[int] | None = None,
        **_: Any,
    ) -> None:
        """Merges the connectors' states of the remote runners, and sends the result to all runners.

        Args:
            config: not used; for callers of Ray's API.
            from_worker: the runner whose states are the result if nothing is merged; by default the local one.
            env_steps_sampled: in all, in the algorithm's life, for exploration that changes with it.
            connector_states: of the runners; by default they are asked, if `config.merge_env_runner_states`.
            rl_module_state: weights to send, too.
            env_runner_indices_to_update: the remote runners; by default all.
        """
        state: dict[str, Any] = {}
        if env_steps_sampled is not None:
            state[names.NUM_ENV_STEPS_SAMPLED_LIFETIME] = env_steps_sampled
        if rl_module_state is not None:
            state.update(rl_module_state)
        if self._config.broadcast_env_runner_states:
            state.update(self._connector_states(connector_states, from_worker))
        if not state:
            return
        if self._local is not None:
            self._local.set_state(state)
        if self._count:
            self._send(ray.put(state), env_runner_indices_to_update, 0.0)

    def _connector_states(self, states: Sequence[Mapping[str, Any]] | None, source: Any) -> dict[str, Any]:
        """The connectors' states by component; empty if there are only default ones."""
        config = self._config
        if not has_own_pipelines(config):
            return {}
        if source is not None and source is not self._local:
            found: dict[str, Any] = source.get_state(components=CONNECTORS)
            return {name: found[name] for name in CONNECTORS if name in found}
        local = self.local_env_runner
        if local is None:
            return {}
        if states is None and self._count and config.merge_env_runner_states:
            states = self.foreach_env_runner(
                "get_state",
                kwargs={"components": CONNECTORS},
                local_env_runner=False,
                remote_worker_ids=self.healthy_env_runner_ids(),  # others have nothing to tell
                timeout_seconds=config.sample_timeout_s,
            )
        return {
            name: pipeline.merge_states([state[name] for state in states]) if states else pipeline.get_state()
            for name, pipeline in local.pipelines().items()
        }

    def _send(self, ref: Any, to: Collection[int] | None, timeout_s: float | None) -> None:
        chosen = numbers_of(self._actors, None if to is None else [*to], healthy_only=False)
        refs = [self._actors.call(number, "set_state", SYNC, ref) for number in chosen]
        if refs and timeout_s != 0:
            ray.wait(refs, num_returns=len(refs), timeout=timeout_s)
        self._actors.pump()
        for ended in self._actors.take((SYNC,)):
            if isinstance(ended.error, RayTaskError):
                raise ended.error

    # ------------------------------------------------------------ size and end

    def probe_unhealthy_env_runners(self, timeout_seconds: float | None = None) -> list[int]:
        """Looks after runners that died: they are replaced already. The numbers of those that came up again since the
        last call.

        Args:
            timeout_seconds: not used; nothing waits.
        """
        self._actors.pump()
        back, self._actors.came_up = self._actors.came_up, []
        return back

    def add_workers(self, num_workers: int, validate: bool = False) -> None:
        """Adds remote runners.

        Args:
            validate: whether to wait until they are up.
        """
        self._count += num_workers
        self._kwargs["num_workers"] = self._count
        self._actors.add(num_workers)
        deadline = time.monotonic() + self._config.env_runner_restore_timeout_s
        while validate and len(self._actors.runners.ready) < self.num_remote_env_runners():
            left = deadline - time.monotonic()
            if left <= 0:
                raise RayError(f"{num_workers} more environment runners did not come up in time")
            self._actors.pump(left)

    def wait_for_one(self) -> None:
        """Waits until a remote runner is up, if there are some.

        Raises:
            EnvRunnerFailedError: none can be started.
            GetTimeoutError: none was up within `config.env_runner_restore_timeout_s`.
        """
        if self._count:
            self._actors.wait_for_one(self._config.env_runner_restore_timeout_s)

    def validate(self) -> None:
        """Hears of runners that cannot start: waits until one is up, and at most `VALIDATION_S` longer for the others,
        as there may be no room for them. Runners whose environment is gymnasium's own, and was made in this process,
        too, are not waited for.

        Raises:
            EnvRunnerFailedError: one has failed.
            GetTimeoutError: none was up within `config.env_runner_restore_timeout_s`.
        """
        if self._cannot_fail:
            return
        self.wait_for_one()
        deadline = time.monotonic() + VALIDATION_S
        while len(self.healthy_env_runner_ids()) < self.num_remote_env_runners():
            left = deadline - time.monotonic()
            if left <= 0:
                return
            self._actors.pump(left)

    def stop(self) -> None:
        """Ends all runners. They close their environments."""
        self._actors.stop()
        if self._local is not None:
            self._local.stop()


def _default_class(config: Config) -> type:
    if config.is_multi_agent:
        if config.output is not None:
            raise ValueError(
                "Experience of several agents is not recorded by itself: give an env_runner_cls of your own with "
                "config.env_runners(), or do without config.offline_data(output=...)"
            )
        module, name = "env.multi_agent_env_runner", "MultiAgentEnvRunner"
    elif config.output is not None:
        module, name = "offline.offline_env_runner", "OfflineSingleAgentEnvRunner"
    else:
        module, name = "env.single_agent_env_runner", "SingleAgentEnvRunner"
    cls: type = getattr(importlib.import_module(f"runtime.rllib.{module}"), name)
    return cls


def _weights_of(source: Any, policies: Collection[str] | None, inference_only: bool) -> Any:
    """A learner group's weights by module, or a runner's."""
    if hasattr(source, "get_weights"):
        return source.get_weights(policies, inference_only=inference_only)
    return source.get_state(components=COMPONENT_RL_MODULE, inference_only=inference_only)[
        COMPONENT_RL_MODULE
    ]
