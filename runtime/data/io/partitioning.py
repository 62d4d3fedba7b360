"""Values that the folders of a path encode: `year=2024/month=01/` (Hive) or `2024/01/` (directory)."""

from __future__ import annotations

import dataclasses
import enum
import posixpath
import urllib.parse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


NULL_NAME = "__HIVE_DEFAULT_PARTITION__"
"""The folder of rows whose value is null."""


class PartitionStyle(enum.StrEnum):
    """How folders encode values: as `name=value`, or as values whose names are agreed on."""

    HIVE = "hive"
    DIRECTORY = "dir"


@dataclasses.dataclass
class Partitioning:
    """How paths encode values.

    Attributes:
        style: The encoding; also "hive" or "dir".
        base_dir: The folder below which values are looked for; by default the whole path.
        field_names: The names of the values, in order. A must for the directory style; for Hive they are checked.
        field_types: Python types (int, float, str, bool) by name; str by default.
        filesystem: Not needed; accepted for Ray's signature.

    Raises:
        ValueError: The directory style has no field names.
    """

    style: PartitionStyle | str
    base_dir: str | None = None
    field_names: list[str] | None = None
    field_types: dict[str, type] | None = None
    filesystem: Any = None

    def __post_init__(self) -> None:
        self.style = PartitionStyle(self.style)
        self.base_dir = self.base_dir or ""
        self.field_types = self.field_types or {}
        if self.style is PartitionStyle.DIRECTORY and not self.field_names:
            raise ValueError("Directory partitioning needs field_names: a path has only the values.")


class PathPartitionParser:
    """Reads the values of a path: `parser("year=2024/a.csv") == {"year": "2024"}`."""

    def __init__(self, partitioning: Partitioning) -> None:
        self._partitioning = partitioning
        self._base = _normalized(partitioning.base_dir or "")

    @staticmethod
    def of(
        style: PartitionStyle | str = PartitionStyle.HIVE,
        base_dir: str | None = None,
        field_names: list[str] | None = None,
        field_types: dict[str, type] | None = None,
        filesystem: Any = None,
    ) -> PathPartitionParser:
        return PathPartitionParser(Partitioning(style, base_dir, field_names, field_types, filesystem))

    @property
    def scheme(self) -> Partitioning:
        return self._partitioning

    def __call__(self, path: str) -> dict[str, Any]:
        """The path's values by name; empty for a path outside the base folder or without values.

        Raises:
            ValueError: The path has other fields than `field_names`, or a value is not of its type.
        """
        folder = posixpath.dirname(_normalized(path))
        if self._base:
            if folder != self._base and not folder.startswith(self._base + "/"):
                return {}
            folder = folder[len(self._base) :]
        parts = [part for part in folder.split("/") if part]
        found = (
            self._hive(parts, path)
            if self._partitioning.style is PartitionStyle.HIVE
            else self._named(parts, path)
        )
        return {name: self._typed(name, value, path) for name, value in found.items()}

    def _hive(self, parts: list[str], path: str) -> dict[str, str]:
        found = dict(part.split("=", 1) for part in parts if "=" in part)
        wanted = self._partitioning.field_names
        if wanted and found and list(found) != list(wanted):
            raise ValueError(f"Expected the partition keys {list(wanted)} but found {list(found)} in {path}.")
        return found

    def _named(self, parts: list[str], path: str) -> dict[str, str]:
        names = self._partitioning.field_names or []
        if parts and len(parts) != len(names):
            raise ValueError(
                f"Expected {len(names)} partition value(s) but found {len(parts)}: {parts} in {path}."
            )
        return dict(zip(names, parts, strict=False))

    def _typed(self, name: str, value: str, path: str) -> Any:
        value = urllib.parse.unquote(value)
        if value == NULL_NAME:
            return None
        wanted = (self._partitioning.field_types or {}).get(name, str)
        if wanted is bool and value.lower() in ("true", "false"):
            return value.lower() == "true"
        try:
            return wanted(value)
        except ValueError:
            raise ValueError(
                f"The partition value {name}={value!r} of {path} is no {wanted.__name__}."
            ) from None


class PathPartitionFilter:
    """Keeps the paths whose values satisfy a function."""

    def __init__(
        self, path_partition_parser: PathPartitionParser, filter_fn: Callable[[dict[str, Any]], bool]
    ) -> None:
        self._parser = path_partition_parser
        self._filter = filter_fn

    @staticmethod
    def of(
        filter_fn: Callable[[dict[str, Any]], bool],
        style: PartitionStyle | str = PartitionStyle.HIVE,
        base_dir: str | None = None,
        field_names: list[str] | None = None,
        field_types: dict[str, type] | None = None,
        filesystem: Any = None,
    ) -> PathPartitionFilter:
        parser = PathPartitionParser.of(style, base_dir, field_names, field_types, filesystem)
        return PathPartitionFilter(parser, filter_fn)

    @property
    def parser(self) -> PathPartitionParser:
        return self._parser

    def apply(self, path: str) -> bool:
        return bool(self._filter(self._parser(path)))

    def __call__(self, paths: list[str]) -> list[str]:
        return [path for path in paths if self.apply(path)]


def arrow_type(values: dict[str, Any], name: str) -> pa.DataType:
    """The Arrow type of a partition value."""
    import pyarrow as pa

    kinds = {bool: pa.bool_(), int: pa.int64(), float: pa.float64()}
    return kinds.get(type(values[name]), pa.string())


def _normalized(path: str) -> str:
    """Without scheme, bucket marks and a trailing slash, so that base folders and paths compare."""
    return path.partition("://")[2].rstrip("/") if "://" in path else path.rstrip("/")
