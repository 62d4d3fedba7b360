"""Checks of values in configurations, whose errors name the field and its place."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Self, TypeVar

from runtime.serve._settings import Settings

log = logging.getLogger(__name__)
T = TypeVar("T")


class Schema(Settings):
    """Base of schemas. Unknown fields are ignored, so that what is written for later versions works; `WARNS`: with a
    warning."""

    WARNS: ClassVar[bool] = False

    @classmethod
    def model_validate(cls, values: Any) -> Self:
        """See `Settings.model_validate`."""
        if isinstance(values, Mapping):
            known = {field.name for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
            unknown = sorted(str(name) for name in values if name not in known)
            if unknown and cls.WARNS:
                log.warning("%s has no field %s, which is ignored.", cls.__name__, ", ".join(unknown))
            values = {name: value for name, value in values.items() if name in known}
        return super().model_validate(values)


class ConfigSchema(Schema):
    """Base of the schemas of configurations."""

    WARNS = True


@contextmanager
def at(place: str) -> Iterator[None]:
    """Errors say where in the configuration they are.

    Raises:
        ValueError: a value below is wrong.
    """
    try:
        yield
    except (ValueError, TypeError) as error:
        separator = "." if getattr(error, "is_placed", False) else ": "
        placed = ValueError(f"{place}{separator}{error}")
        placed.is_placed = True  # type: ignore[attr-defined]
        raise placed from None


def text(owner: object, name: str) -> None:
    """Checks that an attribute is a string that is not empty."""
    value = getattr(owner, name)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} must be a non-empty string, not {value!r}.")


def mapping(owner: object, name: str) -> None:
    """Checks that an attribute is a dict; None becomes {}."""
    value = getattr(owner, name)
    if value is None:
        setattr(owner, name, {})
    elif not isinstance(value, dict):
        raise ValueError(f"{name} must be a dict, not {value!r}.")


def flag(owner: object, name: str) -> None:
    """Checks that an attribute is a bool."""
    value = getattr(owner, name)
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, not {value!r}.")


def nested(owner: object, name: str, parse: Callable[[Any], T]) -> None:
    """Parses an attribute that is a dict or a schema already; None remains None."""
    value = getattr(owner, name)
    if value is not None:
        with at(name):
            setattr(owner, name, parse(value))


def nested_list(owner: object, name: str, parse: Callable[[Any], T]) -> None:
    """Parses the members of an attribute that is a list; None becomes []."""
    value = getattr(owner, name)
    value = [] if value is None else value
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise ValueError(f"{name} must be a list, not {value!r}.")
    made = []
    for index, each in enumerate(value):
        called = each.get("name") if isinstance(each, Mapping) else None
        with at(f"{name}[{index}]" + (f" ({called})" if isinstance(called, str) else "")):
            made.append(parse(each))
    setattr(owner, name, made)


def nested_dict(owner: object, name: str, parse: Callable[[Any], T]) -> None:
    """Parses the values of an attribute that is a dict."""
    mapping(owner, name)
    made = {}
    for key, each in getattr(owner, name).items():
        with at(f"{name}[{key!r}]"):
            made[key] = parse(each)
    setattr(owner, name, made)


def remote_environment(owner: object, name: str) -> None:
    """Checks a `runtime_env` of a configuration, which any node must be able to fetch: its `working_dir` and
    `py_modules` are URIs."""
    mapping(owner, name)
    env = getattr(owner, name)
    modules = env.get("py_modules") or ()
    if not isinstance(modules, list | tuple):
        raise ValueError(f"{name}: py_modules must be a list, not {modules!r}.")
    for place in (*modules, env.get("working_dir")):
        if place is not None and "://" not in str(place):
            raise ValueError(
                f"{name}: working_dir and py_modules of a configuration must be URIs that all nodes can fetch, "
                f"not {place!r}: upload a .zip file and give its URI."
            )
