"""The module of an agent, independent of a framework, and the specification that builds it."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Collection
from typing import Any

from ..._core.types import DEFAULT_MODULE_ID
from ...utils.checkpoints import Checkpointable
from .default_model_config import DefaultModelConfig, complete_model_config


class RLModule(Checkpointable):
    """Networks of an agent, with one forward pass for each of: acting greedily, exploring, and learning.

    A subclass makes its networks in `setup()` and overrides `_forward()`, or those of `_forward_inference`,
    `_forward_exploration` and `_forward_train` that differ. A batch has "obs" [batch, ...]; a recurrent module's has
    [batch, time, ...] and "state_in". The result has "action_dist_inputs" (parameters of the distribution over
    actions), or "actions"; a recurrent module's has "state_out".

    Attributes:
        observation_space, action_space: of the agent, after connectors.
        inference_only: networks that only learning needs are left out (`InferenceOnlyAPI`).
        learner_only: the module is only on learners, not on environment runners.
        model_config: settings; a dict if an `RLModuleSpec` built the module.
        action_dist_cls: set it in `setup()` for another distribution than the action space's default.
    """

    framework: str | None = None
    STATE_FILE_NAME = "module_state"
    action_dist_cls: Any = None

    def __init__(
        self,
        *,
        observation_space: Any = None,
        action_space: Any = None,
        inference_only: bool | None = None,
        learner_only: bool = False,
        model_config: DefaultModelConfig | dict[str, Any] | None = None,
        catalog_class: Any = None,
        **kwargs: Any,
    ) -> None:
        """Keeps the arguments and calls `setup()`.

        Raises:
            TypeError: there are arguments that no class took.
        """
        if kwargs:
            raise TypeError(f"{type(self).__name__} got unexpected arguments: {', '.join(sorted(kwargs))}")
        self.observation_space = observation_space
        self.action_space = action_space
        self.inference_only = bool(inference_only)
        self.learner_only = learner_only
        self.model_config: Any = {} if model_config is None else model_config
        self.catalog_class = catalog_class
        self._catalog: Any = None
        self.setup()
        self._is_setup = True

    @property
    def catalog(self) -> Any:
        """The catalog of default networks, made on first use; None without a `catalog_class`.

        Raises:
            ValueError: it has no networks for the module's spaces, or `model_config` has a misspelled setting.
        """
        if self._catalog is None and self.catalog_class is not None:
            self._catalog = self.catalog_class(
                observation_space=self.observation_space,
                action_space=self.action_space,
                model_config_dict=complete_model_config(self.model_config),
            )
        return self._catalog

    @catalog.setter
    def catalog(self, catalog: Any) -> None:
        self._catalog = catalog

    def setup(self) -> None:
        """Makes the networks. A subclass overrides it; attributes such as `self.observation_space` are set."""

    # ---- distributions

    def get_inference_action_dist_cls(self) -> Any:
        """The class of the distribution that acting greedily uses."""
        return self._action_dist_cls()

    def get_exploration_action_dist_cls(self) -> Any:
        """The class of the distribution that exploring samples from."""
        return self._action_dist_cls()

    def get_train_action_dist_cls(self) -> Any:
        """The class of the distribution that losses use."""
        return self._action_dist_cls()

    def _action_dist_cls(self) -> Any:
        if self.action_dist_cls is None:
            raise NotImplementedError(
                f"{type(self).__name__} has no default distribution. Set `self.action_dist_cls` in setup()"
            )
        return self.action_dist_cls

    # ---- forward passes

    def forward_inference(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """The forward pass for acting without exploration. Override `_forward_inference`, not this."""
        return self._forward_inference(batch, **kwargs)

    def forward_exploration(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """The forward pass for acting with exploration. Override `_forward_exploration`, not this."""
        return self._forward_exploration(batch, **kwargs)

    def forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """The forward pass for losses. Override `_forward_train`, not this.

        Raises:
            RuntimeError: the module is for inference only.
        """
        if self.inference_only:
            raise RuntimeError(
                f"This {type(self).__name__} was made with inference_only=True: it cannot be trained. Build it with "
                "inference_only=False"
            )
        return self._forward_train(batch, **kwargs)

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """The forward pass of those of the three that are not overridden."""
        raise NotImplementedError(
            f"{type(self).__name__} must override `_forward()`, or `_forward_inference()`, `_forward_exploration()` "
            "and `_forward_train()`"
        )

    def _forward_inference(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return self._forward(batch, **kwargs)

    def _forward_exploration(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return self._forward(batch, **kwargs)

    def _forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return self._forward(batch, **kwargs)

    def get_initial_state(self) -> Any:
        """A recurrent module's state before an episode's first step, without a batch dimension; {} without state."""
        return {}

    def is_stateful(self) -> bool:
        """True for recurrent modules: those whose initial state is a dict that is not empty."""
        state = self.get_initial_state()
        if not isinstance(state, dict):
            raise ValueError(
                f"{type(self).__name__}.get_initial_state() must return a dict ({{}} without state), not {state!r}"
            )
        return bool(state)

    # ---- state

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        inference_only: bool = False,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """The module's weights by name, as NumPy arrays; with `inference_only` those that acting needs."""
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        """Sets the weights that are in `state`."""

    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What makes an equal module, but for its weights: `type(self)(*args, **kwargs)`."""
        return (), {
            "observation_space": self.observation_space,
            "action_space": self.action_space,
            "inference_only": self.inference_only,
            "learner_only": self.learner_only,
            "model_config": self.model_config,
            "catalog_class": self.catalog_class,
        }

    def as_multi_rl_module(self) -> Any:
        """A `MultiRLModule` of which this is the only module, under the id "default_policy"."""
        multi = importlib.import_module(f"{__package__}.multi_rl_module")  # it imports this module
        result = multi.MultiRLModule()
        result.add_module(DEFAULT_MODULE_ID, self)
        return result

    def unwrapped(self) -> RLModule:
        """The module without wrappers such as that of DDP."""
        return self


@dataclasses.dataclass
class RLModuleSpec:
    """What `build()` makes an `RLModule` from. An algorithm fills in what is None.

    Attributes:
        module_class: class to build.
        observation_space, action_space: of the agent.
        inference_only: leave out networks that only learning needs.
        learner_only: have the module only on learners.
        model_config: settings for the module: a `DefaultModelConfig` or a dict.
        catalog_class: a `Catalog` for default modules.
        load_state_path: checkpoint of a module (a path or URI) whose weights an algorithm loads after building.
    """

    module_class: type[RLModule] | None = None
    observation_space: Any = None
    action_space: Any = None
    inference_only: bool = False
    learner_only: bool = False
    model_config: DefaultModelConfig | dict[str, Any] | None = None
    catalog_class: Any = None
    load_state_path: str | None = None

    def build(self) -> RLModule:
        """The module.

        Raises:
            ValueError: the class or a space is missing.
        """
        if self.module_class is None:
            raise ValueError("RLModuleSpec.module_class is not set")
        for name in ("observation_space", "action_space"):
            if getattr(self, name) is None:
                raise ValueError(
                    f"RLModuleSpec.{name} is not set; {self.module_class.__name__} cannot be built"
                )
        return self.module_class(
            observation_space=self.observation_space,
            action_space=self.action_space,
            inference_only=self.inference_only,
            learner_only=self.learner_only,
            model_config=self._model_config_dict(),
            catalog_class=self.catalog_class,
        )

    def _model_config_dict(self) -> dict[str, Any]:
        if isinstance(self.model_config, DefaultModelConfig):
            return dataclasses.asdict(self.model_config)
        return dict(self.model_config or {})

    @classmethod
    def from_module(cls, module: RLModule) -> RLModuleSpec:
        """The specification of a module that exists.

        Raises:
            ValueError: it is a `MultiRLModule`, which has a specification of its own.
        """
        module = module.unwrapped()
        if hasattr(module, "rl_module_specs"):
            raise ValueError("A MultiRLModule has a MultiRLModuleSpec: use MultiRLModuleSpec.from_module()")
        return cls(
            module_class=type(module),
            observation_space=module.observation_space,
            action_space=module.action_space,
            inference_only=module.inference_only,
            learner_only=module.learner_only,
            model_config=module.model_config,
            catalog_class=module.catalog_class,
        )

    def to_dict(self) -> dict[str, Any]:
        """Itself as a dict; see `from_dict`."""
        return {
            "module_class": self.module_class,
            "observation_space": self.observation_space,
            "action_space": self.action_space,
            "inference_only": self.inference_only,
            "learner_only": self.learner_only,
            "model_config": self._model_config_dict(),
            "catalog_class": self.catalog_class,
            "load_state_path": self.load_state_path,
        }

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> RLModuleSpec:
        """The specification that `to_dict` described."""
        return cls(**d)

    def update(self, other: RLModuleSpec, override: bool = True) -> None:
        """Takes over from another specification: everything it sets, or only what this one leaves open.

        Args:
            other: the other specification.
            override: True replaces what this one has set.

        Raises:
            ValueError: `other` is no specification of one module.
        """
        if not isinstance(other, RLModuleSpec):
            raise ValueError(f"An RLModuleSpec can only be updated from an RLModuleSpec, not from {other!r}")
        for field in dataclasses.fields(self):
            value = getattr(other, field.name)
            if value is None:
                continue
            if field.name in ("inference_only", "learner_only"):
                if override:
                    setattr(self, field.name, value)
            elif override or getattr(self, field.name) is None:
                setattr(self, field.name, value)

    def as_multi_rl_module_spec(self) -> Any:
        """A `MultiRLModuleSpec` of which this is the only one, under the id "default_policy"."""
        multi = importlib.import_module(f"{__package__}.multi_rl_module")  # it imports this module
        return multi.MultiRLModuleSpec(
            rl_module_specs={DEFAULT_MODULE_ID: self},
            load_state_path=self.load_state_path,
        )
