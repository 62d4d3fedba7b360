"""The language of `filter`, as far as anybody here speaks it: comparisons joined by AND or by parentheses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_TERM = re.compile(r'\(?\s*([A-Za-z_][\w.-]*)\s*(!=|=|eq|:)\s*("(?:[^"\\]|\\.)*"|[^\s()]+)\s*\)?')


class BadFilter(ValueError):
    """It is no filter, or one that is not understood here."""


def matches(text: str, resource: Mapping[str, Any]) -> bool:
    """Whether a resource is meant."""
    rest = text.strip()
    while rest:
        term = _TERM.match(rest)
        if term is None:
            raise BadFilter(f"Invalid value for field 'filter': '{text}'")
        key, operator, value = term.groups()
        if not _holds(_value(key, resource), operator, value.strip('"')):
            return False
        rest = rest[term.end() :].strip()
        rest = re.sub(r"^AND\b", "", rest).strip()
    return True


def _value(key: str, resource: Mapping[str, Any]) -> str | None:
    found: Any = resource
    for part in key.split(".", 1):
        if not isinstance(found, Mapping):
            return None
        found = found.get(part)
    return None if found is None else str(found)


def _holds(found: str | None, operator: str, value: str) -> bool:
    if operator == ":":
        return found is not None and (value == "*" or value in found)
    if operator == "eq":
        return found is not None and re.fullmatch(value, found) is not None
    return (found == value) == (operator == "=")
