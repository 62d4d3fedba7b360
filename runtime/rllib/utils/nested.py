"""Lists of what may be one item, and nested dicts as flat ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def force_list(elements: Any = None, to_tuple: bool = False) -> list[Any] | tuple[Any, ...]:
    """The elements of a list, tuple or set; None gives none, and anything else is the only element.

    Args:
        elements: the elements.
        to_tuple: give a tuple in place of a list.
    """
    if elements is None:
        items: list[Any] = []
    elif isinstance(elements, list | tuple | set):
        items = list(elements)
    else:
        items = [elements]
    return tuple(items) if to_tuple else items


def force_tuple(elements: Any = None) -> tuple[Any, ...]:
    """As `force_list`, as a tuple."""
    return tuple(force_list(elements))


def flatten_dict(nested: Mapping[str, Any], sep: str = "/") -> dict[str, Any]:
    """{"a": {"b": 1}} as {"a/b": 1}. Keys of empty dicts vanish."""
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}{sep}{inner}": leaf for inner, leaf in flatten_dict(value, sep).items()}
        else:
            flat[key] = value
    return flat


def unflatten_dict(flat: Mapping[str, Any], sep: str = "/") -> dict[str, Any]:
    """{"a/b": 1} as {"a": {"b": 1}}; the inverse of `flatten_dict`."""
    nested: dict[str, Any] = {}
    for path, value in flat.items():
        *parents, name = path.split(sep)
        place = nested
        for parent in parents:
            place = place.setdefault(parent, {})
        place[name] = value
    return nested


def merge_dicts(d1: Mapping[str, Any], d2: Mapping[str, Any]) -> dict[str, Any]:
    """A new dict: d1 with the values of d2, in nested dicts, too."""
    merged = dict(d1)
    for key, value in d2.items():
        below = merged.get(key)
        merged[key] = (
            merge_dicts(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
        )
    return merged
