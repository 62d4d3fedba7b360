"""Finds out why a value cannot be pickled."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, TextIO

from runtime._wire import serialization

_RULE = 80


@dataclass(frozen=True, eq=False)
class FailureTuple:
    """An object that cannot be pickled.

    Attributes:
        obj: the object.
        path: the names that lead to it.
        parent: the object that contains it; None for the value itself.
    """

    obj: Any
    path: tuple[str, ...]
    parent: Any

    @property
    def name(self) -> str:
        """Its own name."""
        return self.path[-1] if self.path else "unknown"

    def __repr__(self) -> str:
        way = " -> ".join(self.path)
        return f"FailTuple({self.name} [path={way}, obj={self.obj}, parent={self.parent}])"


def inspect_serializability(
    base_obj: Any, name: str | None = None, depth: int = 3, print_file: TextIO | None = None
) -> tuple[bool, set[FailureTuple]]:
    """Tries to pickle a value, and prints which parts of it cannot be pickled.

    Args:
        base_obj: the value.
        name: its name in the output.
        depth: how far to look into functions' closures and objects' attributes.
        print_file: where to print; default: standard output.

    Returns:
        Whether it can be pickled, and the objects in it that cannot.
    """
    search = _Search(print_file)
    headline = f"Checking Serializability of {base_obj}"
    rule = "=" * min(len(headline), _RULE)
    for line in (rule, headline, rule):
        search.say(line)
    path = (name,) if name is not None else ()
    error = _error_of(base_obj)
    if error is None:
        return True, search.failures
    search.look(base_obj, path, None, depth, error)
    search.say(rule)
    for failure in search.failures:
        search.say(f"Variable: {failure} was found to be non-serializable.")
    search.say(
        "There may be others. Move what is named into the function or class that uses it, or leave it out, or see "
        "register_serializer()."
    )
    search.say(rule)
    return False, search.failures


def _error_of(value: Any) -> Exception | None:
    try:
        serialization.dumps_function(value)
    except Exception as error:
        return error
    return None


class _Search:
    def __init__(self, print_file: TextIO | None) -> None:
        self.failures: set[FailureTuple] = set()
        self._print_file = print_file
        self._level = 0

    def say(self, line: str) -> None:
        print("    " * self._level + line, file=self._print_file)

    def look(self, value: Any, path: tuple[str, ...], parent: Any, depth: int, error: Exception) -> None:
        """Finds the innermost objects that keep `value` from being pickled."""
        self.say(f"!!! FAIL serialization: {error}")
        known = len(self.failures)
        if depth > 0:
            self._level += 1
            for name, part in self._parts(value):
                self.say(f"Serializing '{name}' {part}...")
                inner = _error_of(part)
                if inner is not None:
                    self.look(part, (*path, name), value, depth - 1, inner)
                    break
            self._level -= 1
        if len(self.failures) == known:
            self.failures.add(FailureTuple(value, path or ("unknown",), parent))

    def _parts(self, value: Any) -> list[tuple[str, Any]]:
        if inspect.isfunction(value):
            closure = inspect.getclosurevars(value)
            self.say(
                f"Detected {len(closure.globals)} global variables and {len(closure.nonlocals)} nonlocal "
                f"variables of '{value.__qualname__}'. Checking serializability..."
            )
            return [*closure.globals.items(), *closure.nonlocals.items()]
        if isinstance(value, dict):
            return [(str(key), part) for key, part in value.items()]
        if isinstance(value, list | tuple | set | frozenset):
            return [(str(index), part) for index, part in enumerate(value)]
        functions = inspect.getmembers(value, predicate=inspect.isfunction)
        try:
            attributes = list(vars(value).items())
        except TypeError:
            attributes = []
        others = [(name, part) for name, part in attributes if not name.startswith("__")]
        return [*functions, *others]
