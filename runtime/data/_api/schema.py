"""`Schema`: the names and types of the columns of a data set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


class Schema:
    """The names and types of columns."""

    def __init__(self, base_schema: pa.Schema) -> None:
        self.base_schema = base_schema

    @property
    def names(self) -> list[str]:
        """Of the columns."""
        return list(self.base_schema.names)

    @property
    def types(self) -> Sequence[Any]:
        """Arrow types of the columns."""
        return list(self.base_schema.types)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and bool(self.base_schema.equals(other.base_schema))

    def __hash__(self) -> int:
        return hash(tuple(self.names))

    def __repr__(self) -> str:
        """A table of names and types."""
        width = max(map(len, ["Column", *self.names]))
        lines = [("Column", "Type"), ("------", "----"), *zip(self.names, self.types, strict=True)]
        return "\n".join(f"{name:{width}}  {kind}" for name, kind in lines)

    def brief(self) -> str:
        """The names and types in one line."""
        return ", ".join(f"{each.name}: {each.type}" for each in self.base_schema)
