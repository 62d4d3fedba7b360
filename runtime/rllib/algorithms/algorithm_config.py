"""The settings of an algorithm, and what is built from them."""

from __future__ import annotations

import copy
import dataclasses
import difflib
import math
from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from typing import Any, Self

from runtime.rllib._core.types import ModuleID
from runtime.rllib.algorithms._config import module_specs, pipelines, validation
from runtime.rllib.algorithms._config.agents import AgentSettings, policy_specs
from runtime.rllib.algorithms._config.data import DataSettings
from runtime.rllib.algorithms._config.evaluation import EvaluationSettings
from runtime.rllib.algorithms._config.learning import LearningSettings
from runtime.rllib.algorithms._config.running import RunningSettings
from runtime.rllib.algorithms._config.sampling import SamplingSettings
from runtime.rllib.algorithms._config.settings import REPLACED, NotProvided
from runtime.rllib.policy.policy import PolicySpec

__all__ = ["AlgorithmConfig", "NotProvided"]

_NAMES = {
    "lambda_": "lambda",
    "input_": "input",
    "framework_str": "framework",
    "callbacks_class": "callbacks",
}
"""Attributes -> their names in dicts, where those differ."""
_ATTRIBUTES = {
    **{name: attribute for attribute, name in _NAMES.items()},
    "model_config": "_model_config",
    "rl_module_spec": "_rl_module_spec",
    "learner_class": "_learner_class",
    "learner_connector": "_learner_connector",
    "env_to_module_connector": "_env_to_module_connector",
    "module_to_env_connector": "_module_to_env_connector",
    "is_atari": "_is_atari",
    "train_batch_size_per_learner": "_train_batch_size_per_learner",
}
_OWN = ("algo_class", "_is_frozen", "_config_by_module")
_EVALUATION_SEEDS = 1_000_000
"""Added to the seed of evaluation's runners, which shall not play the episodes of training again."""
_CLOSE = 0.8
"""Names that are at least so similar to one of a setting are taken for a slip."""


class AlgorithmConfig(
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

    # ---- dicts and copies

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any]) -> Self:
        """The defaults with what the dict says. See `update_from_dict`."""
        return cls().update_from_dict(config_dict)

    @classmethod
    def overrides(cls, **kwargs: Any) -> dict[str, Any]:
        """Checked settings for `algorithm_config_overrides_per_module` and `evaluation_config`.

        Raises:
            KeyError: there is no such setting.
        """
        default = cls()
        for name in kwargs:
            if name not in default:
                near = difflib.get_close_matches(name, default.to_dict(), n=1)
                hint = f" Did you mean {near[0]!r}?" if near else ""
                raise KeyError(f"{cls.__name__} has no setting {name!r}.{hint}")
        return kwargs

    def to_dict(self) -> dict[str, Any]:
        """All settings. `update_from_dict` takes them."""
        return {
            _NAMES.get(name, name): _copied(value) for name, value in vars(self).items() if name not in _OWN
        }

    def update_from_dict(self, config_dict: dict[str, Any]) -> Self:
        """Sets what the dict says. Settings that are dicts of free entries (`env_config`, `learner_config_dict`) are
        merged. A name that no setting has becomes a new one, unless it looks like a slip.

        Raises:
            TypeError: a name is nearly one of a setting.
            ValueError: a setting belongs to the old API stack.
        """
        known = self.to_dict().keys() | _ATTRIBUTES.keys()
        for name, value in config_dict.items():
            if name in _OWN:
                continue
            if name == "multiagent":
                self.multi_agent(**value)
            elif name in REPLACED and name not in known:
                raise ValueError(f"The setting {name!r} belongs to the old API stack. Use {REPLACED[name]}.")
            elif (
                name in ("env_config", "learner_config_dict")
                and isinstance(value, dict)
                and "grid_search" not in value
            ):
                setattr(self, name, {**getattr(self, name), **value})
            elif name == "policies":
                self.policies = policy_specs(value)
            elif name == "callbacks":
                self.callbacks(value)
            elif name == "framework":
                self.framework(value)
            else:
                if name not in known and not name.startswith("_"):
                    self._check_no_slip(name, known)
                setattr(self, _ATTRIBUTES.get(name, name), value)
        return self

    def _check_no_slip(self, name: str, known: Any) -> None:
        near = difflib.get_close_matches(name, known, n=1, cutoff=_CLOSE)
        if near:
            raise TypeError(f"{type(self).__name__} has no setting {name!r}. Did you mean {near[0]!r}?")

    def get_state(self) -> dict[str, Any]:
        """The class and all settings. See `from_state`."""
        return {"class": type(self), **vars(self), "_config_by_module": {}}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Any:
        """The object whose `get_state` this was."""
        made = state["class"]()
        made.__dict__.update({name: value for name, value in state.items() if name != "class"})
        return made

    def serialize(self) -> dict[str, Any]:
        """All settings with values as text where JSON cannot hold them."""

        def plain(value: Any) -> Any:
            if value is None or isinstance(value, bool | int | float | str):
                return value
            if isinstance(value, dict):
                return {str(key): plain(each) for key, each in value.items()}
            if isinstance(value, list | tuple):
                return [plain(each) for each in value]
            if hasattr(value, "__qualname__"):
                return f"{value.__module__}.{value.__qualname__}"
            return repr(value)

        return {name: plain(value) for name, value in self.to_dict().items()}

    def copy(self, copy_frozen: bool | None = None) -> Self:
        """A deep copy of the settings; functions, classes and spaces are shared.

        Args:
            copy_frozen: whether the copy is frozen; None: as this one.
        """
        made = type(self).__new__(type(self))
        made.__dict__.update({name: _copied(value) for name, value in vars(self).items()})
        made.__dict__["_config_by_module"] = {}
        made.__dict__["_is_frozen"] = self._is_frozen if copy_frozen is None else copy_frozen
        return made

    def __deepcopy__(self, _memo: dict[int, Any]) -> Self:
        return self.copy()

    def freeze(self) -> None:
        """From now on setting anything raises an AttributeError."""
        self.__dict__["_is_frozen"] = True
        if isinstance(self.evaluation_config, AlgorithmConfig):
            self.evaluation_config.freeze()

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

    # ---- as a mapping

    def __getitem__(self, item: str) -> Any:
        if not self.__contains__(item):
            raise KeyError(item)
        return getattr(self, _ATTRIBUTES.get(item, item))

    def __setitem__(self, key: str, value: Any) -> None:
        setattr(self, _ATTRIBUTES.get(key, key), value)

    def __contains__(self, item: object) -> bool:
        return isinstance(item, str) and item not in _OWN and _ATTRIBUTES.get(item, item) in vars(self)

    def __iter__(self) -> Iterator[str]:
        return iter(self.to_dict())

    def get(self, key: str, default: Any = None) -> Any:
        """The setting of this name, or `default`."""
        try:
            return self[key]
        except KeyError:
            return default

    def pop(self, key: str, default: Any = None) -> Any:
        """As `get`: no setting is removed."""
        return self.get(key, default)

    def keys(self) -> KeysView[str]:
        """Names of all settings."""
        return self.to_dict().keys()

    def values(self) -> ValuesView[Any]:
        """Values of all settings."""
        return self.to_dict().values()

    def items(self) -> ItemsView[str, Any]:
        """Pairs of name and value of all settings."""
        return self.to_dict().items()

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        default = type(self)().to_dict()
        changed = {
            name: value
            for name, value in self.to_dict().items()
            if name not in default or not _same(default[name], value)
        }
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in changed.items())})"

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
                **_overrides(spec.config if spec is not None else None),
                **_overrides(self.algorithm_config_overrides_per_module.get(module_id)),
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
        if made.evaluation_duration_unit == "episodes" and made.evaluation_duration != "auto":
            made.metrics_num_episodes_for_smoothing = made.evaluation_duration
        if self.evaluation_duration_unit == "episodes":
            made.batch_mode = "complete_episodes"
        made.update_from_dict(_overrides(self.evaluation_config))
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
        """
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


def _copied(value: Any) -> Any:
    """A copy of dicts, lists and sets with all below; other objects are shared, but those that may change copied."""
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_copied(each) for each in value]
    if isinstance(value, set):
        return set(value)
    if isinstance(value, AlgorithmConfig):
        return value.copy()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return copy.copy(value)
    return value


def _same(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:  # objects of users may not be comparable, for example arrays
        return one is other


def _overrides(given: Any) -> dict[str, Any]:
    """Settings as a dict: of a dict, or those of a config that differ from its defaults."""
    if given is None:
        return {}
    if isinstance(given, AlgorithmConfig):
        default = type(given)().to_dict()
        return {
            name: value
            for name, value in given.to_dict().items()
            if name not in default or not _same(default[name], value)
        }
    return dict(given)


def as_config(given: Any, default: AlgorithmConfig) -> AlgorithmConfig:
    """A config from what `Algorithm` and `runtime.tune` get: a config, or a dict of changes to the default."""
    if isinstance(given, AlgorithmConfig):
        return given
    return default.update_from_dict(dict(given or {}))
