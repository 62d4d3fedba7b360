"""What functions of `sample_from` see of a configuration that is not resolved entirely."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from runtime.tune.space.compiled import (
    Path,
    RecursiveDependencyError,
    has_open_parameters,
    is_container,
    open_parameter,
    path_name,
)


class ConfigView(Mapping[str, Any]):
    """A configuration whose values are reached as items or attributes.

    To the outermost view `.config` is the view itself, for functions written as `lambda spec: spec.config.x`, and so is
    the item "config" unless a parameter has that name.

    Looking at a parameter that is still open raises RecursiveDependencyError.
    """

    def __init__(self, values: Mapping[Any, Any], path: Path = ()) -> None:
        self._values = values
        self._path = path

    def __getitem__(self, key: Any) -> Any:
        if key == "config" and not self._path and key not in self._values:
            return self
        return self._guarded(self._values[key], (*self._path, key))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copying and pickling ask for these before there are values
            raise AttributeError(name)
        if name == "config" and not self._path:
            return self
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"There is no parameter '{path_name((*self._path, name))}'") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"ConfigView({self._values!r})"

    def _guarded(self, value: Any, path: Path) -> Any:
        if open_parameter(value) is not None:
            raise RecursiveDependencyError(f"Parameter '{path_name(path)}' is not resolved yet")
        if isinstance(value, dict):
            return ConfigView(value, path)
        if is_container(value) and has_open_parameters(value):
            raise RecursiveDependencyError(
                f"Parameter '{path_name(path)}' has parts that are not resolved yet"
            )
        return value


def without_views(value: Any) -> Any:
    """Returns a value of a user's function with the views in it replaced by dicts.

    Raises:
        RecursiveDependencyError: A view holds an open parameter.
    """
    if isinstance(value, ConfigView):
        return {key: without_views(value[key]) for key in value}
    if isinstance(value, dict):
        return {key: without_views(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_views(item) for item in value]
    if type(value) is tuple:
        return tuple(without_views(item) for item in value)
    return value
