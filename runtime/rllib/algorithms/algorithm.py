"""The base of all algorithms: sets up runners and learners, repeats training steps, evaluates, saves."""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable, Collection
from typing import Any, ClassVar, Self

import runtime
from runtime.rllib._core.types import DEFAULT_MODULE_ID, ModuleID
from runtime.rllib.algorithms._algorithm import modules, resources
from runtime.rllib.algorithms._algorithm.evaluation import Evaluation
from runtime.rllib.algorithms._algorithm.results import ResultFiller
from runtime.rllib.algorithms._algorithm.threads import threads_of
from runtime.rllib.algorithms.algorithm_config import AlgorithmConfig, as_config
from runtime.rllib.callbacks.utils import CallbackCaller
from runtime.rllib.utils.checkpoints import Checkpointable
from runtime.rllib.utils.metrics import (
    ENV_RUNNER_RESULTS,
    EVALUATION_RESULTS,
    FAULT_TOLERANCE_STATS,
    LEARNER_RESULTS,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    NUM_ENV_STEPS_TRAINED_LIFETIME,
    NUM_TRAINING_STEP_CALLS_PER_ITERATION,
    RESTORE_ENV_RUNNERS_TIMER,
    RESTORE_EVAL_ENV_RUNNERS_TIMER,
    SYNCH_ENV_CONNECTOR_STATES_TIMER,
    TIMERS,
    TRAINING_ITERATION_TIMER,
    TRAINING_STEP_TIMER,
)
from runtime.rllib.utils.metrics.metrics_logger import DEFAULT_STATS_CLS_LOOKUP, MetricsLogger
from runtime.tune import PlacementGroupFactory, Trainable
from runtime.tune.registry import publish_envs

logger = logging.getLogger(__name__)

COMPONENT_LEARNER_GROUP = "learner_group"
COMPONENT_ENV_RUNNER = "env_runner"
COMPONENT_EVAL_ENV_RUNNER = "eval_env_runner"
COMPONENT_METRICS_LOGGER = "metrics_logger"

_REPLACED = {
    "workers": "env_runner_group",
    "evaluation_workers": "eval_env_runner_group",
    "restore_workers": "restore_env_runners(env_runner_group)",
    "export_model": "get_module(module_id).save_to_path(path)",
    "export_policy_model": "get_module(module_id).save_to_path(path)",
    "export_policy_checkpoint": "get_module(module_id).save_to_path(path)",
    "get_default_policy_class": "AlgorithmConfig.get_default_learner_class() and get_default_rl_module_spec()",
    "merge_algorithm_configs": "AlgorithmConfig.update_from_dict()",
    "train_buffered": "train(), with reporting(min_time_s_per_iteration=...)",
}
"""Attributes of the old API stack, and what to use in their place."""


class Algorithm(Checkpointable, Trainable):
    """An algorithm with its environment runners and learners.

    A subclass defines `get_default_config` and `training_step`. The latter samples with `env_runner_group`, updates
    with `learner_group`, and puts what both report into `metrics` with `aggregate`. It returns nothing.

    Args:
        config: an AlgorithmConfig, or a dict of changes to the default one.
        env: in place of the environment of `config`.

    Attributes:
        config: the settings, frozen.
        metrics: the `MetricsLogger` of all results.
        env_runner_group: samples; None with offline data only.
        eval_env_runner_group: evaluates; None without evaluation.
        learner_group: updates the modules.
        offline_data: recorded experience; None without.
    """

    STATE_FILE_NAME = "algorithm_state"
    METADATA_FILE_NAME = "rllib_checkpoint.json"

    preloaded_modules: ClassVar[tuple[str, ...]] = ("torch", "gymnasium")

    config: Any
    metrics: MetricsLogger
    env_runner_group: Any
    eval_env_runner_group: Any
    learner_group: Any
    offline_data: Any
    evaluation_config: Any
    callbacks: list[Any]

    def __init__(self, config: Any = None, env: Any = None, **kwargs: Any) -> None:
        given = as_config(config, self.get_default_config())
        if env is not None:
            given = given.copy(copy_frozen=False)
            given.env = env
        self._begin({}, None)
        self.setup(given)

    @classmethod
    def get_default_config(cls) -> AlgorithmConfig:
        """The settings without any changes."""
        return AlgorithmConfig(algo_class=cls)

    # ---- what subclasses define

    def training_step(self) -> None:
        """One round of sampling and learning. `train()` calls it once or more often."""
        raise NotImplementedError(f"{type(self).__name__} must define training_step().")

    # ---- setting up

    def setup(self, config: Any) -> None:
        """Makes everything. Called by the constructor, and by `runtime.tune` with a dict.

        Raises:
            ValueError: settings do not fit together.
        """
        self.config = given = as_config(config, self.get_default_config())
        if given.algo_class is None:
            given.algo_class = type(self)
        given.validate()
        given.freeze()
        os.environ.update(given.extra_python_environs_for_driver)
        logging.getLogger("runtime.rllib").setLevel(given.log_level)
        self._callbacks = CallbackCaller(given)
        self.callbacks = self._callbacks.objects
        lookup = {**DEFAULT_STATS_CLS_LOOKUP, **given.custom_stats_cls_lookup}
        self.metrics = MetricsLogger(root=True, stats_cls_lookup=lookup)
        self._filler = ResultFiller(given)
        self.evaluation_config = given.get_evaluation_config_object()
        self.env_runner_group = self.eval_env_runner_group = self.learner_group = self.offline_data = None
        self._is_stopped = False
        try:
            self._set_up_parts()
        except BaseException:
            self._stop_parts()
            raise
        self._evaluation = Evaluation(self)
        self._callbacks.call("on_algorithm_init", algorithm=self, metrics_logger=self.metrics)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Begins again with other settings, in this process. See `Trainable.reset_config`."""
        self._stop_parts()
        self.setup(new_config)
        return True

    def _set_up_parts(self) -> None:
        from runtime.rllib.env.env_runner_group import EnvRunnerGroup

        config = self.config
        self._publish_envs()
        if config.env is not None or config.is_online:
            self.env_runner_group = EnvRunnerGroup(config=config)
        if self.evaluation_config is not None and (
            self.evaluation_config.env is not None or self.env_runner_group is not None
        ):
            self.eval_env_runner_group = EnvRunnerGroup(config=self.evaluation_config)
        group = self.env_runner_group or self.eval_env_runner_group
        spaces = None if group is None else group.get_spaces()
        self._module_spec = config.get_multi_rl_module_spec(spaces=spaces, inference_only=False)
        self.learner_group = config.build_learner_group(rl_module_spec=self._module_spec)
        modules.load_states(self.learner_group, self._module_spec)
        for each in (self.env_runner_group, self.eval_env_runner_group):
            if each is not None:
                each.sync_weights(from_worker_or_learner_group=self.learner_group, inference_only=True)
        for each in (self.env_runner_group, self.eval_env_runner_group):
            if each is not None and config.validate_env_runners_after_construction:
                each.validate()

    def _publish_envs(self) -> None:
        """Actors have to find environments that this process has registered."""
        actors = self.config.num_env_runners + self.config.evaluation_num_env_runners
        if isinstance(self.config.env, str) and actors:
            if not runtime.is_initialized():
                runtime.init()
            publish_envs()

    def _begin(self, config: dict[str, Any], place: Any) -> None:
        # An experiment calls this before and after `setup`; the config is what `setup` made of it.
        made = self.__dict__.get("config")
        super()._begin(config, place)
        if isinstance(made, AlgorithmConfig):
            self.config = made

    @property
    def env_runner(self) -> Any:
        """The runner in this process; None without one."""
        return None if self.env_runner_group is None else self.env_runner_group.local_env_runner

    @property
    def eval_env_runner(self) -> Any:
        """The evaluating runner in this process; None without one."""
        return None if self.eval_env_runner_group is None else self.eval_env_runner_group.local_env_runner

    # ---- training

    def train(self) -> dict[str, Any]:
        """One iteration: training steps until the settings of `reporting()` are met, and an evaluation if it is due.

        Returns:
            The results: "env_runners", "learners", "evaluation", "timers", "training_iteration", ...
        """
        started = time.perf_counter()
        result = self.step()
        self._iteration += 1
        result = self._filler.filled(result, self._iteration, time.perf_counter() - started)
        self._latest_result = result
        self.log_result(result)
        return result

    def step(self) -> dict[str, Any]:
        """What `train()` does, without what an experiment adds to results."""
        if self._is_stopped:
            raise RuntimeError(
                "The algorithm was stopped. Build a new one, or restore it with from_checkpoint()."
            )
        with threads_of(self.config):
            return self._step()

    def _step(self) -> dict[str, Any]:
        interval = self.config.evaluation_interval
        due = (
            bool(interval)
            and (self._iteration + 1) % interval == 0
            and self.eval_env_runner_group is not None
        )
        if due and self.config.evaluation_parallel_to_training:
            with self._evaluation.beside_training() as evaluation:
                self._train_iteration()
            evaluation.results()
        else:
            self._train_iteration()
            if due:
                self.evaluate()
        results = self.metrics.compile()
        evaluated = self._evaluation.latest()
        if evaluated:
            results[EVALUATION_RESULTS] = results.get(EVALUATION_RESULTS, {}) | evaluated
        self._filler.complete(results, self)
        return results

    def _train_iteration(self) -> None:
        config, metrics = self.config, self.metrics
        started = time.monotonic()
        sampled_before, trained_before = self._sampled(), self._trained()
        calls = 0
        with metrics.log_time((TIMERS, TRAINING_ITERATION_TIMER)):
            while True:
                with metrics.log_time((TIMERS, TRAINING_STEP_TIMER)):
                    self.training_step()
                calls += 1
                if (
                    time.monotonic() - started >= (config.min_time_s_per_iteration or 0)
                    and self._sampled() - sampled_before >= (config.min_sample_timesteps_per_iteration or 0)
                    and self._trained() - trained_before >= (config.min_train_timesteps_per_iteration or 0)
                ):
                    break
        metrics.log_value(NUM_TRAINING_STEP_CALLS_PER_ITERATION, calls, reduce="sum")
        self._share_runner_states()
        self._tell_of_new_runners(self.env_runner_group, is_evaluation=False)

    def _share_runner_states(self) -> None:
        """Runners learn how much all of them have sampled, and what the others' connectors have learned."""
        config, group = self.config, self.env_runner_group
        has_connectors = config.env_to_module_connector or config.module_to_env_connector
        if group is None:
            return
        with self.metrics.log_time((TIMERS, SYNCH_ENV_CONNECTOR_STATES_TIMER)):
            if has_connectors or config.num_env_runners:
                group.sync_env_runner_states(config=config, env_steps_sampled=self._sampled())

    def _sampled(self) -> int:
        return int(self.metrics.peek((ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME), default=0))

    def _trained(self) -> int:
        path = (LEARNER_RESULTS, "__all_modules__", NUM_ENV_STEPS_TRAINED_LIFETIME)
        return int(self.metrics.peek(path, default=0))

    def restore_env_runners(self, env_runner_group: Any) -> list[int]:
        """Looks after a group's runners, for a training_step() of one's own that takes long; `train()` does it anyway.

        Returns:
            The numbers of runners that were replaced and are up. Callbacks have been told of them.
        """
        is_evaluation = env_runner_group is self.eval_env_runner_group
        return self._tell_of_new_runners(env_runner_group, is_evaluation)

    def _tell_of_new_runners(self, group: Any, is_evaluation: bool) -> list[int]:
        if group is None:
            return []
        timer = RESTORE_EVAL_ENV_RUNNERS_TIMER if is_evaluation else RESTORE_ENV_RUNNERS_TIMER
        with self.metrics.log_time((TIMERS, timer)):
            indices: list[int] = group.probe_unhealthy_env_runners()
        if indices:
            self.metrics.log_value(
                (FAULT_TOLERANCE_STATS, "num_env_runners_recreated_lifetime"),
                len(indices),
                reduce="lifetime_sum",
            )
            self._callbacks.call(
                "on_env_runners_recreated",
                algorithm=self,
                env_runner_group=group,
                env_runner_indices=indices,
                is_evaluation=is_evaluation,
            )
        return indices

    def log_result(self, result: dict[str, Any]) -> None:
        """Called with every result, before it is returned."""
        self._callbacks.call("on_train_result", algorithm=self, metrics_logger=self.metrics, result=result)

    def evaluate(self, parallel_train_future: Any = None) -> dict[str, Any]:
        """Evaluates now.

        Args:
            parallel_train_future: accepted as Ray's.

        Returns:
            The results: "env_runners" with returns and lengths of episodes.

        Raises:
            ValueError: the config has no evaluation.
        """
        with threads_of(self.config):
            return self._evaluation.run()

    # ---- modules

    def get_module(self, module_id: ModuleID = DEFAULT_MODULE_ID) -> Any:
        """The module that acts: that of the local runner, otherwise that of the learner. None: there is none of the
        id."""
        return modules.found(self, module_id)

    def add_module(
        self,
        module_id: ModuleID,
        module_spec: Any,
        *,
        config_overrides: dict[str, Any] | None = None,
        new_agent_to_module_mapping_fn: Callable[..., ModuleID] | None = None,
        new_should_module_be_updated: Callable[..., bool] | Collection[ModuleID] | None = None,
        add_to_learners: bool = True,
        add_to_env_runners: bool = True,
        add_to_eval_env_runners: bool = True,
    ) -> Any:
        """Adds a module while training goes on.

        Args:
            module_id: a new one.
            module_spec: an `RLModuleSpec` with its spaces, and `load_state_path` if it is to go on from a checkpoint.
            config_overrides: settings of the module that differ.
            new_agent_to_module_mapping_fn: from now on.
            new_should_module_be_updated: which modules learn from now on.
            add_to_learners: whether learners get it.
            add_to_env_runners: whether runners do.
            add_to_eval_env_runners: whether evaluating runners do.

        Returns:
            The specification of all modules.

        Raises:
            ValueError: the id is taken or is not valid.
        """
        return modules.add(
            self,
            module_id,
            module_spec,
            config_overrides,
            new_agent_to_module_mapping_fn,
            new_should_module_be_updated,
            add_to_learners,
            [
                *([self.env_runner_group] if add_to_env_runners else []),
                *([self.eval_env_runner_group] if add_to_eval_env_runners else []),
            ],
        )

    def remove_module(
        self,
        module_id: ModuleID,
        *,
        new_agent_to_module_mapping_fn: Callable[..., ModuleID] | None = None,
        new_should_module_be_updated: Callable[..., bool] | Collection[ModuleID] | None = None,
        remove_from_learners: bool = True,
        remove_from_env_runners: bool = True,
        remove_from_eval_env_runners: bool = True,
    ) -> Any:
        """Removes a module. See `add_module`.

        Raises:
            KeyError: there is none of the id.
        """
        return modules.remove(
            self,
            module_id,
            new_agent_to_module_mapping_fn,
            new_should_module_be_updated,
            remove_from_learners,
            [
                *([self.env_runner_group] if remove_from_env_runners else []),
                *([self.eval_env_runner_group] if remove_from_eval_env_runners else []),
            ],
        )

    def get_weights(self, policies: Collection[ModuleID] | None = None) -> dict[ModuleID, Any]:
        """Module id -> its weights as NumPy arrays."""
        weights: dict[ModuleID, Any] = self.learner_group.get_weights(inference_only=False)
        return {each: weights[each] for each in weights if policies is None or each in policies}

    def set_weights(self, weights: dict[ModuleID, Any]) -> None:
        """Sets weights of modules, in learners and runners."""
        self.learner_group.set_weights(weights)
        self._sync_weights()

    def _sync_weights(self) -> None:
        for group in (self.env_runner_group, self.eval_env_runner_group):
            if group is not None:
                group.sync_weights(from_worker_or_learner_group=self.learner_group, inference_only=True)

    # ---- state

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """See `Checkpointable.get_state`. Components are "learner_group", "env_runner", "eval_env_runner"."""
        state: dict[str, Any] = {}
        for name, component in self.get_checkpointable_components():
            if self._check_component(name, components, not_components):
                state[name] = component.get_state(
                    components=self._get_subcomponents(name, components),
                    not_components=self._get_subcomponents(name, not_components),
                    **kwargs,
                )
        if self._check_component(COMPONENT_METRICS_LOGGER, components, not_components):
            state[COMPONENT_METRICS_LOGGER] = self.metrics.get_state()
        if components is None:
            state["training_iteration"] = self._iteration
            state["time_total_s"] = self._filler.total_s
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """See `Checkpointable.set_state`."""
        for name, component in self.get_checkpointable_components():
            if name in state:
                component.set_state(state[name])
        if COMPONENT_METRICS_LOGGER in state:
            self.metrics.set_state(state[COMPONENT_METRICS_LOGGER])
        if "training_iteration" in state:
            self._iteration = state["training_iteration"]
            self._filler.total_s = state.get("time_total_s", 0.0)
        if COMPONENT_LEARNER_GROUP in state:
            self._sync_weights()

    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """See `Checkpointable.get_ctor_args_and_kwargs`."""
        return (), {"config": self.config.copy(copy_frozen=False)}

    def get_checkpointable_components(self) -> list[tuple[str, Any]]:
        """The learner group, and the local runners."""
        parts = [
            (COMPONENT_LEARNER_GROUP, self.learner_group),
            (COMPONENT_ENV_RUNNER, self.env_runner),
            (COMPONENT_EVAL_ENV_RUNNER, self.eval_env_runner),
        ]
        return [(name, part) for name, part in parts if part is not None]

    def _write(self, folder: str, state: dict[str, Any] | None, use_msgpack: bool) -> None:
        super()._write(folder, state, use_msgpack)
        if self.config.checkpoint_trainable_policies_only:
            learner = os.path.join(folder, COMPONENT_LEARNER_GROUP, "learner")
            for module_id in self.config.policies:
                if not self.config.is_trained(module_id):
                    shutil.rmtree(os.path.join(learner, "rl_module", module_id), ignore_errors=True)

    def _read(self, folder: str, component: str | None = None, **kwargs: Any) -> None:
        super()._read(folder, component, **kwargs)
        self._sync_weights()
        for group in (self.env_runner_group, self.eval_env_runner_group):
            if group is not None:
                group.sync_env_runner_states(config=group.config, env_steps_sampled=self._sampled())
        self._callbacks.call("on_checkpoint_loaded", algorithm=self)

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Saves everything in a folder; for experiments."""
        self.save_to_path(checkpoint_dir, use_msgpack=self.config._use_msgpack_checkpoints)

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Restores what `save_checkpoint` saved."""
        self.restore_from_path(checkpoint)

    @classmethod
    def from_state(cls, state: dict[str, Any], config: AlgorithmConfig) -> Self:
        """An algorithm with the state that `get_state` gave."""
        made = cls(config=config)
        made.set_state(state)
        return made

    # ---- ending

    def cleanup(self) -> None:
        """Ends all runners and learners. See `stop`."""
        self._is_stopped = True
        self._stop_parts()

    def _stop_parts(self) -> None:
        for name, end in (
            ("env_runner_group", "stop"),
            ("eval_env_runner_group", "stop"),
            ("learner_group", "shutdown"),
        ):
            part = self.__dict__.get(name)
            if part is None:
                continue
            try:
                getattr(part, end)()
            except Exception:  # the others are to end anyway
                logger.exception("Ending the %s failed", name)

    # ---- experiments

    @classmethod
    def default_resource_request(cls, config: Any) -> PlacementGroupFactory:
        """The resources of a trial: this process, and all runners' and learners' actors."""
        return resources.request(as_config(config, cls.get_default_config()))

    # ---- the old API stack

    def compute_single_action(self, *args: Any, **kwargs: Any) -> Any:
        """Belongs to the old API stack."""
        raise ValueError(
            "compute_single_action() belongs to the old API stack. Use get_module().forward_inference({'obs': "
            "torch.from_numpy(obs)[None]}), and the module's get_inference_action_dist_cls()."
        )

    def compute_actions(self, *args: Any, **kwargs: Any) -> Any:
        """Belongs to the old API stack."""
        raise ValueError(
            "compute_actions() belongs to the old API stack. Use get_module().forward_inference({'obs': "
            "torch.from_numpy(obs)}), and the module's get_inference_action_dist_cls()."
        )

    def get_policy(self, policy_id: ModuleID = DEFAULT_MODULE_ID) -> Any:
        """Belongs to the old API stack."""
        raise ValueError(f"get_policy() belongs to the old API stack. Use get_module({policy_id!r}).")

    def add_policy(self, *args: Any, **kwargs: Any) -> Any:
        """Belongs to the old API stack."""
        raise ValueError("add_policy() belongs to the old API stack. Use add_module(module_id, module_spec).")

    def remove_policy(self, *args: Any, **kwargs: Any) -> Any:
        """Belongs to the old API stack."""
        raise ValueError("remove_policy() belongs to the old API stack. Use remove_module(module_id).")

    def __getattr__(self, name: str) -> Any:
        if name in _REPLACED:
            raise AttributeError(f"{name} belongs to the old API stack. Use {_REPLACED[name]}.")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        if "config" not in self.__dict__:
            return f"{type(self).__name__}()"
        return f"{type(self).__name__}(env={self.config.env}; module_ids={sorted(self.config.policies)})"
