"""Short texts that tell trials apart by the values chosen for them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from runtime.tune.space.compiled import Path, path_name, path_order

_NOT_IN_FILE_NAMES = re.compile(r"[^a-zA-Z0-9_-]+")


def format_vars(resolved_vars: Mapping[Path, Any]) -> str:
    """Returns `lr=0.0100,units=64` for values by path, as part of a directory's name.

    Only the last key of a path is shown, floats have four decimals, and characters that are not fit for file names
    become underscores.
    """
    ordered = sorted(resolved_vars.items(), key=lambda entry: path_order(entry[0]))
    return ",".join(f"{_clean(path[-1])}={_clean(value)}" for path, value in ordered)


def flat_values(resolved_vars: Mapping[Path, Any]) -> dict[str, Any]:
    """Returns the values by name, with slashes between the keys of nested ones."""
    return {path_name(path): value for path, value in resolved_vars.items()}


def _clean(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return _NOT_IN_FILE_NAMES.sub("_", str(value)).strip("_")
