"""The settings of an algorithm, and what is built from them."""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import Any, Self

from runtime.rllib._core.types import ModuleID
from runtime.rllib.algorithms._config import module_specs, pipelines, validation
from runtime.rllib.algorithms._config.agents import AgentSettings, policy_specs
from runtime.rllib.algorithms._config.data import DataSettings
from runtime.rllib.algorithms._config.dicts import DictSettings, changes_of
from runtime.rllib.algorithms._config.evaluation import EvaluationSettings
from runtime.rllib.algorithms._config.learning import LearningSettings
from runtime.rllib.algorithms._config.running import RunningSettings
from runtime.rllib.algorithms._config.sampling import SamplingSettings
from runtime.rllib.algorithms._config.settings import NotProvided
from runtime.rllib.policy.policy import PolicySpec
from runtime.rllib.utils.framework import require

__all__ = ["AlgorithmConfig", "NotProvided"]

_EVALUATION_SEEDS = 1_000_000
"""Added to the seed of evaluation's runners, which shall not play the episodes of training again."""


class AlgorithmConfig(
    DictSettings,
    SamplingSettings,
    LearningSettings,
    AgentSettings,
    DataSettings,
    EvaluationSettings,
    RunningSettings,
):
    """The settings of an algorithm. Methods set them, group by group, and return the object.

    Example:
        config = PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=2).training(lr=3e-4)
        algo = config.build_algo()

    A subclass sets its defaults in `__init__`, and has methods for its own settings (`training`), a default module
    (`get_default_rl_module_spec`) and a learner (`get_default_learner_class`).

    Args:
        algo_class: the class of `Algorithm` that `build_algo` makes.
    """

    def __init__(self, algo_class: type | None = None) -> None:
        self.algo_class = algo_class
        self._init_sampling()
        self._init_learning()
        self._init_agents()
        self._init_data()
        self._init_evaluation()
        self._init_running()
        self._config_by_module: dict[ModuleID, AlgorithmConfig] = {}

    def validate(self) -> None:
        """Checks that the settings fit together.

        Raises:
            ValueError: they do not; says which one to change.
        """
        validation.validate(self)

    def _value_error(self, errmsg: str) -> None:
        raise ValueError(
            f"{errmsg}\nTo switch off the checks of settings: config.experimental(_validate_config=False)."
        )

    # ---- what follows from the settings

    @property
    def train_batch_size_per_learner(self) -> int:
        """Rows of one update of one learner."""
        if self._train_batch_size_per_learner is not None:
            return self._train_batch_size_per_learner
        return self.train_batch_size // (self.num_learners or 1)

    @train_batch_size_per_learner.setter
    def train_batch_size_per_learner(self, value: int) -> None:
        self._train_batch_size_per_learner = value

    @property
    def total_train_batch_size(self) -> int:
        """Rows of one update of all learners together."""
        return self.train_batch_size_per_learner * (self.num_learners or 1)

    @property
    def env_to_module_connector(self) -> Any:
        """The function given to `env_runners(env_to_module_connector=...)`, or None."""
        return self._env_to_module_connector

    @property
    def module_to_env_connector(self) -> Any:
        """The function given to `env_runners(module_to_env_connector=...)`, or None."""
        return self._module_to_env_connector

    @property
    def learner_connector(self) -> Any:
        """The function given to `learners(learner_connector=...)`, or None."""
        return self._learner_connector

    @property
    def learner_class(self) -> type:
        """The class of learners."""
        return self._learner_class or self.get_default_learner_class()

    @property
    def model_config(self) -> dict[str, Any]:
        """The settings of the default module, as a dict."""
        given = self._model_config
        if dataclasses.is_dataclass(given) and not isinstance(given, type):
            given = dataclasses.asdict(given)
        return {**self._model_config_auto_includes, **(given or {})}

    @property
    def _model_config_auto_includes(self) -> dict[str, Any]:
        """What algorithms add to `model_config` where the user does not say otherwise."""
        return {}

    @property
    def rl_module_spec(self) -> Any:
        """The specification of modules; None of its fields is filled in from environments."""
        return self._rl_module_spec if self._rl_module_spec is not None else self.get_default_rl_module_spec()

    @property
    def is_atari(self) -> bool:
        """Whether the environment is an Atari game."""
        if self._is_atari is None:
            name = self.env if isinstance(self.env, str) else ""
            return name.startswith(("ale_py:", "ALE/")) or name.endswith(
                ("NoFrameskip-v0", "NoFrameskip-v4", "-ram-v0")
            )
        return self._is_atari

    @property
    def is_offline(self) -> bool:
        """Whether experience is read, not sampled."""
        return self.input_ is not None and (not isinstance(self.input_, str) or self.input_ != "sampler")

    @property
    def is_online(self) -> bool:
        """Whether experience is sampled."""
        return not self.is_offline

    def get_rollout_fragment_length(self, worker_index: int = 0) -> int:
        """Time steps per environment of one sample.

        Args:
            worker_index: of the runner, from 1; 0: the largest of all. With "auto" runners share a train batch: the
                first ones take one step more if it does not divide evenly.
        """
        if self.rollout_fragment_length != "auto":
            return int(self.rollout_fragment_length)
        runners = max(self.num_env_runners, 1)
        steps = self.total_train_batch_size / (runners * self.num_envs_per_env_runner)
        if self.num_env_runners == 0 or worker_index == 0:
            return math.ceil(steps)
        steps_of_all = math.ceil(self.total_train_batch_size / self.num_envs_per_env_runner)
        return max(1, steps_of_all // runners + (worker_index <= steps_of_all % runners))

    def validate_train_batch_size_vs_rollout_fragment_length(self) -> None:
        """Checks that a whole number of samples is about one train batch, within a tenth.

        Raises:
            ValueError: it is not; says which sizes fit.
        """
        if (
            self.rollout_fragment_length == "auto"
            or self.in_evaluation
            or self.batch_mode == "complete_episodes"
        ):
            return
        sample = (
            max(self.num_env_runners, 1) * self.num_envs_per_env_runner * int(self.rollout_fragment_length)
        )
        size = self.total_train_batch_size
        rest = size % sample
        if size < sample or min(rest, sample - rest) > 0.1 * size:
            self._value_error(
                f"The train batch ({size}) is no multiple of what all runners sample at once ({sample} = "
                f"{max(self.num_env_runners, 1)} runners x {self.num_envs_per_env_runner} environments x "
                f"rollout_fragment_length {self.rollout_fragment_length}). Set rollout_fragment_length='auto', or "
                f"train_batch_size_per_learner={max(1, round(size / sample)) * sample // (self.num_learners or 1)}."
            )

    def get_torch_compile_worker_config(self) -> dict[str, Any]:
        """Arguments of `torch.compile` for runners' modules."""
        return {
            "backend": self.torch_compile_worker_dynamo_backend,
            "mode": self.torch_compile_worker_dynamo_mode,
        }

    def get_config_for_module(self, module_id: ModuleID) -> Self:
        """These settings with what `algorithm_config_overrides_per_module` and the module's `PolicySpec` change."""
        if module_id not in self._config_by_module:
            spec = self.policies.get(module_id)
            changes = {
                **changes_of(spec.config if spec is not None else None),
                **changes_of(self.algorithm_config_overrides_per_module.get(module_id)),
            }
            if not changes:
                return self
            made = self.copy(copy_frozen=False).update_from_dict(changes)
            made.algorithm_config_overrides_per_module = {}
            made.policies[module_id] = (
                dataclasses.replace(spec, config=None) if spec else policy_specs([module_id])[module_id]
            )
            if self._is_frozen:
                made.freeze()
            else:
                return made  # more may be set: it is made again
            self._config_by_module[module_id] = made
        found: Any = self._config_by_module[module_id]
        return found

    def get_evaluation_config_object(self) -> Self | None:
        """The settings of evaluation's runners, frozen; None: there is no evaluation."""
        if self.in_evaluation:
            return self
        if not (
            self.evaluation_interval or self.evaluation_num_env_runners or self.evaluation_config is not None
        ):
            return None
        made = self.copy(copy_frozen=False)
        made.in_evaluation = True
        made.evaluation_config = None
        made.num_env_runners = self.evaluation_num_env_runners
        made.create_local_env_runner = self.evaluation_num_env_runners == 0 or self.create_local_env_runner
        made.sample_timeout_s = self.evaluation_sample_timeout_s
        made.input_ = "sampler"
        made.output = None
        if made.seed is not None:
            made.seed += _EVALUATION_SEEDS
        if self.evaluation_duration_unit == "episodes":
            made.batch_mode = "complete_episodes"
            if self.evaluation_duration != "auto":
                made.metrics_num_episodes_for_smoothing = int(self.evaluation_duration)
        made.update_from_dict(changes_of(self.evaluation_config))
        made.in_evaluation = True
        made.freeze()
        return made

    # ---- modules

    def get_default_rl_module_spec(self) -> Any:
        """The module if the user gives none: an `RLModuleSpec` or `MultiRLModuleSpec`."""
        raise NotImplementedError(f"{type(self).__name__} must define get_default_rl_module_spec().")

    def get_default_learner_class(self) -> type:
        """The class of learners if the user gives none."""
        raise NotImplementedError(f"{type(self).__name__} must define get_default_learner_class().")

    def get_multi_agent_setup(
        self, *, policies: Any = None, env: Any = None, spaces: dict[str, Any] | None = None
    ) -> tuple[dict[ModuleID, Any], Any]:
        """All modules with their spaces, and a function of a module id that says whether it is trained.

        Args:
            policies: as of `multi_agent`; None: those of this config.
            env: an environment or vector of environments, whose spaces are taken where nothing else says them.
            spaces: module id -> (observation space, action space).

        Raises:
            ValueError: a module's spaces are not known.
        """
        given = self.policies if policies is None else policy_specs(policies)
        return module_specs.with_spaces(self, given, env, spaces), self.is_trained

    def get_rl_module_spec(
        self, env: Any = None, spaces: dict[str, Any] | None = None, inference_only: bool | None = None
    ) -> Any:
        """The complete specification of the module of a single agent. See `get_multi_rl_module_spec`."""
        return module_specs.single_spec(self, env, spaces, inference_only)

    def get_multi_rl_module_spec(
        self,
        *,
        env: Any = None,
        spaces: dict[str, Any] | None = None,
        inference_only: bool | None = None,
        policy_dict: Any = None,
        single_agent_rl_module_spec: Any = None,
    ) -> Any:
        """The complete specification of all modules.

        Args:
            env: see `get_multi_agent_setup`.
            spaces: the same.
            inference_only: True: modules are only built to act, without those that only learners need.
            policy_dict: module ids, in place of those of this config.
            single_agent_rl_module_spec: for all modules, in place of that of this config.

        Raises:
            ValueError: a module's spaces are not known.
        """
        return module_specs.multi_spec(
            self, env, spaces, inference_only, policy_dict, single_agent_rl_module_spec
        )

    def change_module(
        self, module_id: ModuleID, module_spec: Any, overrides: dict[str, Any] | None = None
    ) -> None:
        """Adds a module, so that an algorithm built of this config has it.

        Args:
            module_spec: an `RLModuleSpec` with its spaces; None removes the module.
            overrides: its settings that differ.
        """
        from runtime.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec

        policies, given = dict(self.policies), self.rl_module_spec
        if isinstance(given, MultiRLModuleSpec):
            specs = dict(given.rl_module_specs or {})
            changed = copy.copy(given)
        else:
            specs = {each: copy.copy(given) for each in policies}
            changed = MultiRLModuleSpec(rl_module_specs={})
        if module_spec is None:
            policies.pop(module_id, None)
            specs.pop(module_id, None)
            self.algorithm_config_overrides_per_module.pop(module_id, None)
        else:
            space = {
                "observation_space": module_spec.observation_space,
                "action_space": module_spec.action_space,
            }
            policies[module_id] = PolicySpec(**space)
            specs[module_id] = module_spec
            if overrides is not None:
                self.rl_module(algorithm_config_overrides_per_module={module_id: overrides})
        changed.rl_module_specs = specs
        self.policies, self._rl_module_spec = policies, changed

    # ---- building

    def build_algo(self, env: Any = None, use_copy: bool = True) -> Any:
        """Makes the algorithm.

        Args:
            env: in place of the environment of this config.
            use_copy: whether it gets a copy; otherwise this object is frozen.

        Raises:
            ValueError: settings do not fit together, or no class of algorithms belongs to this config.
            ImportError: torch or gymnasium is not installed.
        """
        require("gymnasium", "torch")
        if self.algo_class is None:
            raise ValueError(
                f"{type(self).__name__} belongs to no algorithm. Build one of a subclass such as PPOConfig, or pass "
                "algo_class."
            )
        algo_class: Any = self.algo_class
        config = self.copy(copy_frozen=False) if use_copy else self
        if env is not None:
            config.env = env
        return algo_class(config=config)

    def build(self, *args: Any, **kwargs: Any) -> Any:
        """The same as `build_algo`, which newer programs call."""
        return self.build_algo(*args, **kwargs)

    def build_env_to_module_connector(self, env: Any = None, spaces: Any = None, device: Any = None) -> Any:
        """The pipeline from episodes to a module's batch, in a runner."""
        return pipelines.env_to_module(self, env, spaces, device)

    def build_module_to_env_connector(self, env: Any = None, spaces: Any = None) -> Any:
        """The pipeline from a module's output to actions, in a runner."""
        return pipelines.module_to_env(self, env, spaces)

    def build_learner_connector(
        self, input_observation_space: Any, input_action_space: Any, device: Any = None
    ) -> Any:
        """The pipeline from episodes to a train batch, in a learner."""
        return pipelines.learner(self, input_observation_space, input_action_space, device)

    def build_learner(self, *, env: Any = None, spaces: dict[str, Any] | None = None) -> Any:
        """A learner in this process, built."""
        learner: Any = self.learner_class(
            config=self, module_spec=self.get_multi_rl_module_spec(env=env, spaces=spaces)
        )
        learner.build()
        return learner

    def build_learner_group(
        self,
        *,
        env: Any = None,
        spaces: dict[str, Any] | None = None,
        rl_module_spec: Any = None,
        placement_group: Any = None,
    ) -> Any:
        """The learners that the settings of `learners()` say.

        Args:
            env: see `get_multi_agent_setup`.
            spaces: the same.
            rl_module_spec: in place of `get_multi_rl_module_spec`.
            placement_group: whose bundles learners' actors take.
        """
        from runtime.rllib.core.learner.learner_group import LearnerGroup

        if rl_module_spec is None:
            rl_module_spec = self.get_multi_rl_module_spec(env=env, spaces=spaces)
        more = {} if placement_group is None else {"placement_group": placement_group}
        return LearnerGroup(config=self.copy(), module_spec=rl_module_spec, **more)


def as_config(given: Any, default: AlgorithmConfig) -> AlgorithmConfig:
    """A config from what `Algorithm` and `runtime.tune` get: a config, or a dict of changes to the default."""
    if isinstance(given, AlgorithmConfig):
        return given
    return default.update_from_dict(dict(given or {}))
