"""Checks a call's arguments against a signature before the call leaves: a wrong call fails where it is written."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Parameters = list[tuple[str, int, bool]]
"""Name, kind (as of `inspect.Parameter`), and whether there is a default. Travels with actor handles."""


def parameters_of(function: Callable[..., Any], skip_first: bool = False) -> Parameters | None:
    """The parameters of a callable; None when they cannot be known (made in C)."""
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return None
    found = [(p.name, int(p.kind), p.default is not p.empty) for p in signature.parameters.values()]
    return found[1:] if skip_first and found and found[0][1] < inspect.Parameter.VAR_POSITIONAL else found


class ArgumentCheck:
    """A signature, ready to check many calls."""

    __slots__ = ("_fewest", "_most", "_signature")

    def __init__(self, parameters: Parameters | None) -> None:
        self._signature: inspect.Signature | None = None
        self._fewest, self._most = 0, -1
        if parameters is None:
            return
        default = object()
        kinds = (
            inspect.Parameter.POSITIONAL_ONLY,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            inspect.Parameter.VAR_POSITIONAL,
            inspect.Parameter.KEYWORD_ONLY,
            inspect.Parameter.VAR_KEYWORD,
        )
        self._signature = inspect.Signature(
            [
                inspect.Parameter(name, kinds[kind], default=default if has else inspect.Parameter.empty)
                for name, kind, has in parameters
            ]
        )
        positional = [p for p in parameters if p[1] <= inspect.Parameter.POSITIONAL_OR_KEYWORD]
        needs_keyword = any(p[1] == inspect.Parameter.KEYWORD_ONLY and not p[2] for p in parameters)
        if not needs_keyword:
            self._fewest = sum(not p[2] for p in positional)
            takes_any = any(p[1] == inspect.Parameter.VAR_POSITIONAL for p in parameters)
            self._most = sys.maxsize if takes_any else len(positional)

    def __call__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Raises TypeError when the call cannot be bound."""
        if self._signature is not None and (kwargs or not self._fewest <= len(args) <= self._most):
            self._signature.bind(*args, **kwargs)
