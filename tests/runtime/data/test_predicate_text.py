"""Predicates as text."""

from __future__ import annotations

import pyarrow as pa
import pytest

from runtime.data._predicate_text import parse
from runtime.data.expressions import Position, filter_table

TABLE = pa.table({"a": [1, 2, 3, 4, None], "b": ["x", "y", "x", "z", None]})


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a > 2", [3, 4]),
        ("a * 2 + 1 == 7", [3]),
        ("1 < a <= 3", [2, 3]),
        ("a == -1 or a >= 4", [4]),
        ("-a < -3", [4]),
        ("b == 'x' and a != 1", [3]),
        ("(b == 'x') & ~(a == 1) | (a == 4)", [3, 4]),
        ("not a < 3", [3, 4]),
        ("b in ['y', 'z']", [2, 4]),
        ("a not in (1, 2)", [3, 4, None]),
        ("a is None", [None]),
        ("b is not None", [1, 2, 3, 4]),
        ("  a // 2 == 1 ", [2, 3]),
    ],
)
def test_texts_keep_their_rows(text: str, kept: list[int | None]) -> None:
    assert filter_table(TABLE, parse(text), Position(0, 0)).column("a").to_pylist() == kept


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("f(a) > 1", "'f(a)'"),
        ("a.b == 1", "'a.b'"),
        ("a in b", "'b'"),
        ("a is 1", "'1'"),
        ("a ** 2 > 1", "a ** 2"),
    ],
)
def test_what_is_not_known_is_named(text: str, part: str) -> None:
    with pytest.raises(ValueError, match="do not know") as caught:
        parse(text)
    assert part in str(caught.value)


def test_what_is_not_python_is_an_error() -> None:
    with pytest.raises(ValueError, match="no expression in Python's syntax"):
        parse("a >")
