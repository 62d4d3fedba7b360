"""Which installed modules a trainable uses, so that the processes of trials are forked with them imported."""

from __future__ import annotations

import dis
import functools
import inspect
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any


def used_modules(trainable: Any) -> list[str]:
    """Names of modules that a function or class refers to or imports, also through other functions of its module.

    Only modules of installed packages are meant, and only those that this process has imported: what the program has
    not needed so far may be missing on purpose.
    """
    found: set[str] = set()
    seen: set[Any] = set()
    todo = [trainable]
    while todo:
        one = inspect.unwrap(todo.pop())
        while isinstance(one, functools.partial | staticmethod | classmethod):
            one = one.func if isinstance(one, functools.partial) else one.__func__
        if isinstance(one, ModuleType):
            found.add(one.__name__)
        elif not isinstance(one, FunctionType | type):
            found.add(type(one).__module__)
        elif one.__module__ != trainable_module(trainable):
            found.add(one.__module__)
        elif one not in seen:
            seen.add(one)
            todo += list(vars(one).values()) if isinstance(one, type) else _references(one, found)
    return sorted(name for name in found if _is_installed(name))


def trainable_module(trainable: Any) -> str:
    """The module that defines a trainable."""
    while isinstance(trainable, functools.partial):
        trainable = trainable.func
    return str(getattr(trainable, "__module__", ""))


def _references(function: FunctionType, imported: set[str]) -> Iterator[Any]:
    """What a function's code names; modules that it imports itself are added to `imported`."""
    for code in _codes(function.__code__):
        for name in code.co_names:
            if name in function.__globals__:
                yield function.__globals__[name]
        for instruction in dis.get_instructions(code):
            if instruction.opname == "IMPORT_NAME":
                imported.add(instruction.argval)
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # it is not set yet
            continue


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _is_installed(name: str) -> bool:
    file = getattr(sys.modules.get(name), "__file__", None) or ""
    package = name.partition(".")[0]
    return ("site-packages" in file or "dist-packages" in file) and package not in ("runtime", "ray")
