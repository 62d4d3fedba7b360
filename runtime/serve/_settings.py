"""Classes of options that are made, dumped and parsed as pydantic models are, without pydantic, which takes long to
import."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

S = TypeVar("S", bound="Settings")


class Settings:
    """Base of option classes, each decorated with `settings`. Unknown names are ignored, or refused if `STRICT`."""

    STRICT: ClassVar[bool] = False

    _given: frozenset[str]

    def model_dump(self, *, exclude_unset: bool = False) -> dict[str, Any]:
        """The options as a dict; with `exclude_unset` those that were given."""
        names = [field.name for field in dataclasses.fields(self)]  # type: ignore[arg-type]
        return {
            name: _plain(getattr(self, name), exclude_unset)
            for name in names
            if not exclude_unset or name in self._given
        }

    def dict(self, *, exclude_unset: bool = False) -> dict[str, Any]:
        """See `model_dump`."""
        return self.model_dump(exclude_unset=exclude_unset)

    @classmethod
    def model_validate(cls, values: Any) -> Self:
        """From a dict, or a copy of one of its own.

        Raises:
            ValueError: a value is invalid.
        """
        if isinstance(values, cls):
            return copy.copy(values)
        if not isinstance(values, Mapping):
            raise ValueError(f"{cls.__name__} is made of a dict, not of {values!r}.")
        return cls(**values)

    @classmethod
    def parse_obj(cls, values: Any) -> Self:
        """See `model_validate`."""
        return cls.model_validate(values)

    def model_copy(self, *, update: Mapping[str, Any] | None = None) -> Self:
        """A copy with other values."""
        return type(self)(**{**self.model_dump(exclude_unset=True), **(update or {})})

    def copy(self, *, update: Mapping[str, Any] | None = None) -> Self:
        """See `model_copy`."""
        return self.model_copy(update=update)


@dataclass_transform(kw_only_default=True)
def settings(cls: type[S]) -> type[S]:
    """Makes a dataclass of keyword arguments that remembers which were given."""
    made = dataclasses.dataclass(kw_only=True)(cls)
    init: Callable[..., None] = made.__init__
    known = frozenset(field.name for field in dataclasses.fields(made))  # type: ignore[arg-type]

    @wraps(init)
    def __init__(self: Settings, **values: Any) -> None:
        unknown = sorted(set(values) - known)
        if unknown and cls.STRICT:
            raise ValueError(
                f"{cls.__name__} has no option {', '.join(unknown)}; it has {', '.join(sorted(known))}."
            )
        given = {name: value for name, value in values.items() if name in known}
        self._given = frozenset(given)
        init(self, **given)

    setattr(made, "__init__", __init__)  # noqa: B010 - the name of a method, which mypy does not let be set
    return made


def whole(owner: object, name: str, least: int, optional: bool = False) -> None:
    """Checks that an attribute is an int of at least `least`, or None if it is optional; 2.0 becomes 2."""
    value = getattr(owner, name)
    if value is None and optional:
        return
    if isinstance(value, float) and value.is_integer():
        value = int(value)
        setattr(owner, name, value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} must be an integer, not {value!r}.")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, not {value}.")


def number(owner: object, name: str, positive: bool = True, optional: bool = False) -> None:
    """Checks that an attribute is a finite number above zero (zero too without `positive`), or None if optional."""
    value = getattr(owner, name)
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} must be a number, not {value!r}.")
    if value < 0 or (positive and value == 0):
        raise ValueError(f"{name} must be {'positive' if positive else 'at least 0'}, not {value}.")


def _plain(value: Any, exclude_unset: bool) -> Any:
    if isinstance(value, Settings):
        return value.model_dump(exclude_unset=exclude_unset)
    if isinstance(value, list | tuple):
        return type(value)(_plain(each, exclude_unset) for each in value)
    if isinstance(value, dict):
        return {key: _plain(each, exclude_unset) for key, each in value.items()}
    return value
