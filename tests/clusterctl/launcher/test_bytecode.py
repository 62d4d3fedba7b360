"""Modules without text, docstrings and columns."""

from __future__ import annotations

import importlib.util
import marshal
import traceback
import types
from typing import Any

import pytest

from clusterctl.launcher.bytecode import lean

SOURCE = b'''"""What it is."""

from __future__ import annotations


class Documented:
    """Only this."""


def fails(number: int) -> str:
    """Always."""
    match number:
        case 1:
            return f"{number}"
        case _:
            return (
                "several" +
                number
            )
'''


def load(source: bytes) -> dict[str, Any]:
    data = lean(source, "package/module.py")
    assert data[:4] == importlib.util.MAGIC_NUMBER
    code = marshal.loads(data[16:])
    assert isinstance(code, types.CodeType)
    names: dict[str, Any] = {"__name__": "package.module"}
    exec(code, names)
    return names


def test_it_does_the_same_without_docstrings() -> None:
    names = load(SOURCE)
    assert names["fails"](1) == "1"
    assert names["fails"].__annotations__ == {"number": "int", "return": "str"}
    assert [names.get("__doc__"), names["Documented"].__doc__, names["fails"].__doc__] == [None, None, None]


def test_tracebacks_have_lines_and_no_columns() -> None:
    with pytest.raises(TypeError) as caught:
        load(SOURCE)["fails"](2)
    frame = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (frame.filename, frame.name, frame.lineno) == ("package/module.py", "fails", 17)
    assert frame.colno is None


def test_it_is_shorter() -> None:
    assert len(lean(SOURCE, "m.py")) < 16 + len(
        marshal.dumps(compile(SOURCE, "m.py", "exec", dont_inherit=True))
    )
