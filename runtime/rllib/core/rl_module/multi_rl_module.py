"""One module per module id, and the specification that builds them."""

from __future__ import annotations

import copy
import dataclasses
import pprint
import re
from collections.abc import Callable, Collection, ItemsView, KeysView, ValuesView
from typing import Any, TypeVar

from ..._core.types import ModuleID
from .rl_module import RLModule, RLModuleSpec

_Result = TypeVar("_Result")

_FORBIDDEN_IN_IDS = re.compile(r'[<>:"/\\|?*]')  # an id names a folder in checkpoints


def validate_module_id(module_id: ModuleID) -> None:
    """Checks that a module id can name a folder of a checkpoint.

    Raises:
        ValueError: the id is no string, is empty, or has a character that file systems refuse.
    """
    if not isinstance(module_id, str) or not module_id:
        raise ValueError(f"A module id must be a string that is not empty, not {module_id!r}")
    if found := _FORBIDDEN_IN_IDS.search(module_id):
        raise ValueError(
            f"Module id {module_id!r} contains {found.group()!r}. It names a folder in checkpoints: use letters, "
            "digits, '_', '-' and '.'"
        )


class MultiRLModule(RLModule):
    """Modules by id. A batch and a result are dicts: module id -> what that module takes and gives.

    Modules know nothing of one another. A subclass shares parts between them by overriding `setup()`, which fills
    `self._rl_modules`, and the `_forward...` methods.
    """

    def __init__(
        self,
        *,
        observation_space: Any = None,
        action_space: Any = None,
        inference_only: bool | None = None,
        learner_only: bool | None = None,
        model_config: Any = None,
        rl_module_specs: dict[ModuleID, RLModuleSpec] | None = None,
        **kwargs: Any,
    ) -> None:
        """Builds all modules.

        Args:
            observation_space: of parts that belong to no single module.
            action_space: of parts that belong to no single module.
            inference_only: True builds every module for inference only; None means True if all specifications say so.
            learner_only: accepted for the signature of `RLModule`; it has no effect on modules below.
            model_config: settings of parts that belong to no single module.
            rl_module_specs: module id -> specification. They are copied.

        Raises:
            ValueError: a value of `rl_module_specs` is no `RLModuleSpec`, or the modules' frameworks differ.
        """
        specs = {module_id: copy.copy(spec) for module_id, spec in (rl_module_specs or {}).items()}
        for module_id, spec in specs.items():
            if not isinstance(spec, RLModuleSpec):
                raise ValueError(
                    f"The specification of module {module_id!r} must be an RLModuleSpec, not {spec!r}"
                )
        if inference_only is None:
            inference_only = all(spec.inference_only for spec in specs.values())
        if inference_only:
            for spec in specs.values():
                spec.inference_only = True
        self.rl_module_specs = specs
        self._rl_modules: dict[ModuleID, RLModule] = {}
        super().__init__(
            observation_space=observation_space,
            action_space=action_space,
            inference_only=inference_only,
            model_config=model_config,
            **kwargs,
        )

    def setup(self) -> None:
        """Builds the modules from `self.rl_module_specs`."""
        self.framework = None
        for module_id, spec in self.rl_module_specs.items():
            module = spec.build()
            self._adopt_framework(module_id, module)
            self._rl_modules[module_id] = module

    def _adopt_framework(self, module_id: ModuleID, module: RLModule) -> None:
        framework = module.framework
        if framework is not None and self.framework not in (None, framework):
            raise ValueError(
                f"Module {module_id!r} has framework {framework!r}, but the other modules have {self.framework!r}"
            )
        self.framework = framework or self.framework

    # ---- forward passes

    def _forward(self, batch: dict[ModuleID, Any], **kwargs: Any) -> dict[ModuleID, dict[str, Any]]:
        return {
            m: self._rl_modules[m]._forward(part, **kwargs)
            for m, part in batch.items()
            if m in self._rl_modules
        }

    def _forward_inference(self, batch: dict[ModuleID, Any], **kwargs: Any) -> dict[ModuleID, dict[str, Any]]:
        modules = self._rl_modules
        return {m: modules[m].forward_inference(part, **kwargs) for m, part in batch.items() if m in modules}

    def _forward_exploration(
        self, batch: dict[ModuleID, Any], **kwargs: Any
    ) -> dict[ModuleID, dict[str, Any]]:
        modules = self._rl_modules
        return {
            m: modules[m].forward_exploration(part, **kwargs) for m, part in batch.items() if m in modules
        }

    def _forward_train(self, batch: dict[ModuleID, Any], **kwargs: Any) -> dict[ModuleID, dict[str, Any]]:
        modules = self._rl_modules
        return {m: modules[m].forward_train(part, **kwargs) for m, part in batch.items() if m in modules}

    def get_initial_state(self) -> dict[ModuleID, Any]:
        """Module id -> its initial state; {} for modules without one."""
        return {module_id: module.get_initial_state() for module_id, module in self._rl_modules.items()}

    def is_stateful(self) -> bool:
        """True if any module is recurrent."""
        return any(module.is_stateful() for module in self._rl_modules.values())

    # ---- the modules

    def add_module(self, module_id: ModuleID, module: RLModule, *, override: bool = False) -> None:
        """Adds a module.

        Raises:
            ValueError: the id is not valid, or is taken and `override` is False; the module's framework is another.
        """
        validate_module_id(module_id)
        if module_id in self._rl_modules and not override:
            raise ValueError(
                f"Module {module_id!r} exists. Pass override=True to replace it, or use another id"
            )
        self._adopt_framework(module_id, module)
        self.inference_only = bool(self.inference_only and module.inference_only)
        self._rl_modules[module_id] = module
        self.rl_module_specs[module_id] = RLModuleSpec.from_module(module)

    def remove_module(self, module_id: ModuleID, *, raise_err_if_not_found: bool = True) -> None:
        """Removes a module.

        Raises:
            KeyError: there is none of this id and `raise_err_if_not_found` is True.
        """
        if raise_err_if_not_found:
            self._require(module_id)
        self._rl_modules.pop(module_id, None)
        self.rl_module_specs.pop(module_id, None)

    def foreach_module(
        self, func: Callable[..., _Result], *, return_dict: bool = False, **kwargs: Any
    ) -> Any:
        """`func(module_id, module, **kwargs)` for each module, without wrappers such as that of DDP.

        Returns:
            A list of the results, or with `return_dict` a dict: module id -> result.
        """
        results = {m: func(m, module.unwrapped(), **kwargs) for m, module in self._rl_modules.items()}
        return results if return_dict else list(results.values())

    def _require(self, module_id: ModuleID) -> None:
        if module_id not in self._rl_modules:
            raise KeyError(f"There is no module {module_id!r}; there are {sorted(self._rl_modules)}")

    def __contains__(self, module_id: object) -> bool:
        return module_id in self._rl_modules

    def __getitem__(self, module_id: ModuleID) -> RLModule:
        self._require(module_id)
        return self._rl_modules[module_id]

    def get(self, module_id: ModuleID, default: RLModule | None = None) -> RLModule | None:
        """The module of this id, or `default`."""
        return self._rl_modules.get(module_id, default)

    def items(self) -> ItemsView[ModuleID, RLModule]:
        """Pairs of id and module."""
        return self._rl_modules.items()

    def keys(self) -> KeysView[ModuleID]:
        """The ids."""
        return self._rl_modules.keys()

    def values(self) -> ValuesView[RLModule]:
        """The modules."""
        return self._rl_modules.values()

    def __len__(self) -> int:
        return len(self._rl_modules)

    def __bool__(self) -> bool:
        return True  # `len` must not make one without modules false

    def __repr__(self) -> str:
        return f"{type(self).__name__}({pprint.pformat(self._rl_modules)})"

    # ---- state

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        inference_only: bool = False,
        **kwargs: Any,
    ) -> dict[ModuleID, Any]:
        """Module id -> its state, of the modules that `components` and `not_components` select.

        Args:
            inference_only, kwargs: for the modules' `get_state`.
        """
        return {
            module_id: module.get_state(
                components=self._get_subcomponents(module_id, components),
                not_components=self._get_subcomponents(module_id, not_components),
                inference_only=inference_only,
                **kwargs,
            )
            for module_id, module in self.get_checkpointable_components()
            if self._check_component(module_id, components, not_components)
        }

    def set_state(self, state: dict[ModuleID, Any]) -> None:
        """Sets the states of the modules that are in `state`. States of unknown modules are ignored."""
        for module_id, part in state.items():
            if module_id in self._rl_modules:
                self._rl_modules[module_id].set_state(part)

    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What makes an equal object: `type(self)(*args, **kwargs)`."""
        return (), {
            "observation_space": self.observation_space,
            "action_space": self.action_space,
            "inference_only": self.inference_only,
            "learner_only": self.learner_only,
            "model_config": self.model_config,
            "rl_module_specs": self.rl_module_specs,
        }

    def get_checkpointable_components(self) -> list[tuple[str, Any]]:
        """Pairs of id and module: each has a folder in a checkpoint."""
        return list(self._rl_modules.items())

    def as_multi_rl_module(self) -> MultiRLModule:
        """Itself."""
        return self


@dataclasses.dataclass
class MultiRLModuleSpec:
    """What `build()` makes a `MultiRLModule` from.

    multi_rl_module_class: class to build.
    observation_space, action_space, model_config: of parts that belong to no single module.
    inference_only: None means True if all specifications say so.
    rl_module_specs: module id -> its specification.
    load_state_path: checkpoint of a `MultiRLModule` whose state an algorithm loads after it built the module.
    modules_to_load: the ids to load from there; None loads all.
    """

    multi_rl_module_class: type[MultiRLModule] = MultiRLModule
    observation_space: Any = None
    action_space: Any = None
    inference_only: bool | None = None
    model_config: Any = None
    rl_module_specs: dict[ModuleID, RLModuleSpec] | None = None
    load_state_path: str | None = None
    modules_to_load: set[ModuleID] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.rl_module_specs, dict):
            raise ValueError(
                f"rl_module_specs must be a dict from module id to RLModuleSpec, not {self.rl_module_specs!r}. To use "
                "one specification for all modules, pass it itself to config.rl_module(rl_module_spec=...)"
            )
        if self.inference_only is None:
            self.inference_only = all(spec.inference_only for spec in self.rl_module_specs.values())

    @property
    def _specs(self) -> dict[ModuleID, RLModuleSpec]:
        if not isinstance(self.rl_module_specs, dict):
            raise ValueError(
                f"rl_module_specs must be a dict from module id to RLModuleSpec, not {self.rl_module_specs!r}"
            )
        return self.rl_module_specs

    def build(self, module_id: ModuleID | None = None) -> RLModule:
        """The `MultiRLModule`, or with `module_id` that one module.

        Raises:
            KeyError: there is no specification of this id.
            ValueError: `rl_module_specs` is no dict of specifications.
        """
        specs = self._specs
        if module_id is not None:
            return self[module_id].build()
        config = self.model_config
        if dataclasses.is_dataclass(config) and not isinstance(config, type):
            config = dataclasses.asdict(config)
        return self.multi_rl_module_class(
            observation_space=self.observation_space,
            action_space=self.action_space,
            inference_only=self.inference_only,
            model_config=config,
            rl_module_specs=specs,
        )

    def add_modules(self, module_specs: dict[ModuleID, RLModuleSpec], override: bool = True) -> None:
        """Adds specifications.

        Args:
            module_specs: module id -> specification.
            override: replace those of the same id; otherwise fill in what they leave open.
        """
        specs = self._specs
        for module_id, spec in module_specs.items():
            if override or module_id not in specs:
                self.inference_only = bool(self.inference_only and spec.inference_only)
                specs[module_id] = spec
            else:
                specs[module_id].update(spec, override=False)

    def remove_modules(self, module_ids: ModuleID | Collection[ModuleID]) -> None:
        """Removes specifications; ids without one are ignored."""
        for module_id in [module_ids] if isinstance(module_ids, str) else list(module_ids):
            self._specs.pop(module_id, None)

    @classmethod
    def from_module(cls, module: MultiRLModule) -> MultiRLModuleSpec:
        """The specification of a module that exists."""
        return cls(
            multi_rl_module_class=type(module),
            observation_space=module.observation_space,
            action_space=module.action_space,
            inference_only=module.inference_only,
            model_config=module.model_config,
            rl_module_specs={m: RLModuleSpec.from_module(part.unwrapped()) for m, part in module.items()},
        )

    def to_dict(self) -> dict[str, Any]:
        """Itself as a dict; see `from_dict`."""
        return {
            "multi_rl_module_class": self.multi_rl_module_class,
            "observation_space": self.observation_space,
            "action_space": self.action_space,
            "inference_only": self.inference_only,
            "model_config": self.model_config,
            "rl_module_specs": {m: spec.to_dict() for m, spec in self._specs.items()},
        }

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> MultiRLModuleSpec:
        """The specification that `to_dict` described."""
        specs = {m: RLModuleSpec.from_dict(spec) for m, spec in d["rl_module_specs"].items()}
        return cls(**{**d, "rl_module_specs": specs})

    def update(self, other: MultiRLModuleSpec | RLModuleSpec, override: bool = False) -> None:
        """Takes over another specification.

        Args:
            other: of one module: it fills in what the specifications of all modules leave open; of several: as
                `add_modules`.
            override: replace specifications of the same id.
        """
        if isinstance(other, RLModuleSpec):
            self.inference_only = bool(self.inference_only and other.inference_only)
            for spec in self._specs.values():
                spec.update(other, override=False)
        else:
            self.add_modules(other._specs, override=override)

    def as_multi_rl_module_spec(self) -> MultiRLModuleSpec:
        """Itself."""
        return self

    def __contains__(self, module_id: object) -> bool:
        return module_id in self._specs

    def __getitem__(self, module_id: ModuleID) -> RLModuleSpec:
        if module_id not in self._specs:
            raise KeyError(
                f"There is no specification of module {module_id!r}; there are {sorted(self._specs)}"
            )
        return self._specs[module_id]
