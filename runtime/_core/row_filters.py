"""Which rows of a state listing are wanted. Pure: processes, agents and the asking program choose alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

Filter = tuple[str, str, Any]
"""Column, "=" or "!=", value."""


def passes(value: Any, predicate: str, wanted: Any) -> bool:
    """Whether a value is as a filter wants it; strings are compared without case."""
    if isinstance(value, bool) and isinstance(wanted, str):
        equal = wanted.lower() in (("true", "1") if value else ("false", "0"))
    elif isinstance(value, int) and isinstance(wanted, str):
        equal = wanted.strip() == str(value)
    elif isinstance(value, str) and isinstance(wanted, str):
        equal = value.lower() == wanted.lower()
    else:
        equal = value == wanted
    return equal is (predicate == "=")


def chosen(rows: Iterable[dict[str, Any]], filters: Sequence[Filter], limit: int) -> list[dict[str, Any]]:
    """The rows that pass, at most `limit` (0: all). A row passes filters of columns that it lacks. Rows of what runs at
    this moment ("running") complete other rows, and do not count.
    """
    found = []
    count = 0
    for row in rows:
        if all(column not in row or passes(row[column], p, wanted) for column, p, wanted in filters):
            if not row.get("running"):
                count += 1
                if limit and count > limit:
                    continue
            found.append(row)
    return found
