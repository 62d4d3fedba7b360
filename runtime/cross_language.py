"""Functions and classes in other languages, for which there are no workers."""

from __future__ import annotations

import enum
from typing import NoReturn


class Language(enum.Enum):
    """Languages of tasks. Only PYTHON has workers."""

    PYTHON = 0
    JAVA = 1
    CPP = 2

    def __str__(self) -> str:
        return self.name


def _refuse(what: str) -> NoReturn:
    raise NotImplementedError(f"{what} needs workers of another language, and all workers here are Python's.")


def java_function(class_name: str, function_name: str) -> NoReturn:
    """Raises NotImplementedError."""
    _refuse(f"java_function({class_name!r}, {function_name!r})")


def java_actor_class(class_name: str) -> NoReturn:
    """Raises NotImplementedError."""
    _refuse(f"java_actor_class({class_name!r})")


def cpp_function(function_name: str) -> NoReturn:
    """Raises NotImplementedError."""
    _refuse(f"cpp_function({function_name!r})")


def cpp_actor_class(create_function_name: str, class_name: str) -> NoReturn:
    """Raises NotImplementedError."""
    _refuse(f"cpp_actor_class({create_function_name!r}, {class_name!r})")
