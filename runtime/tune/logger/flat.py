"""Results as flat rows, and values as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A dict without dicts in it: {"a": {"b": 1}} becomes {"a/b": 1}. Empty dicts are left out."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found.update(flat(value, f"{prefix}{name}/"))
        else:
            found[f"{prefix}{name}"] = value
    return found


def as_json(value: Any) -> str:
    """A line of JSON. Numbers and arrays of numpy become JSON's, and what JSON does not know its text."""
    return json.dumps(value, default=_plain)


def _plain(value: Any) -> Any:
    for name in ("item", "tolist"):  # numbers and arrays of numpy and torch
        convert = getattr(value, name, None)
        if callable(convert):
            try:
                return convert()
            except (TypeError, ValueError, RuntimeError):
                continue
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    return str(value)
