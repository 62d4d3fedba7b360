"""Settings as dicts, as mappings and as copies."""

from __future__ import annotations

import copy
import dataclasses
import difflib
from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from typing import Any, Self

from runtime.rllib.algorithms._config.agents import policy_specs
from runtime.rllib.algorithms._config.settings import REPLACED, Settings
from runtime.rllib.algorithms._config.without_effect import warn_of

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
_CLOSE = 0.8
"""Names that are at least so similar to one of a setting are taken for a slip."""


class DictSettings(Settings):
    """What dicts, mappings and copies need of a config. Its constructor works without arguments."""

    callbacks: Any
    evaluation_config: Any
    framework: Any
    multi_agent: Any
    policies: Any

    # ---- dicts and copies

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any]) -> Self:
        """The defaults with what the dict says. See `update_from_dict`."""
        return cls().update_from_dict(config_dict)

    @classmethod
    def overrides(cls, **kwargs: Any) -> dict[str, Any]:
        """Checked settings for `algorithm_config_overrides_per_module` and `evaluation_config`, by their names as
        attributes or in dicts.

        Raises:
            KeyError: there is no such setting.
            ValueError: it belongs to the old API stack.
        """
        default = cls()
        known = default.to_dict().keys()
        for name in kwargs:
            if name in REPLACED and name not in known:
                raise ValueError(f"The setting {name!r} belongs to the old API stack. Use {REPLACED[name]}.")
            if name not in default and name not in known:
                near = difflib.get_close_matches(name, known, n=1)
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
                warn_of(name, value, getattr(self, name, value), stacklevel=2)
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
        if isinstance(self.evaluation_config, DictSettings):
            self.evaluation_config.freeze()

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


def _copied(value: Any) -> Any:
    """A copy of dicts, lists and sets with all below; other objects are shared, but those that may change copied."""
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_copied(each) for each in value]
    if isinstance(value, set):
        return set(value)
    if isinstance(value, DictSettings):
        return value.copy()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return copy.copy(value)
    return value


def _same(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:  # objects of users may not be comparable, for example arrays
        return one is other


def changes_of(given: Any) -> dict[str, Any]:
    """Settings as a dict: of a dict, or those of a config that differ from its defaults."""
    if given is None:
        return {}
    if isinstance(given, DictSettings):
        default = type(given)().to_dict()
        return {
            name: value
            for name, value in given.to_dict().items()
            if name not in default or not _same(default[name], value)
        }
    return dict(given)
