from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime._core.labels import check_selector, matches, parse_condition


@pytest.mark.parametrize(
    ("condition", "value", "holds"),
    [
        ("a", "a", True),
        ("a", "b", False),
        ("a", None, False),
        ("!a", "a", False),
        ("!a", "b", True),
        ("!a", None, True),
        ("in(a,b)", "a", True),
        ("in(a,b)", "b", True),
        ("in(a,b)", "c", False),
        ("in(a,b)", None, False),
        ("in( a , b )", "b", True),
        ("in (a)", "a", True),
        ("!in(a,b)", "a", False),
        ("!in(a,b)", "c", True),
        ("!in(a,b)", None, True),
        ("! in(a)", "a", False),
        (" a ", "a", True),
        ("index", "index", True),
        ("inside", "inside", True),
    ],
)
def test_conditions(condition: str, value: str | None, holds: bool) -> None:
    assert parse_condition(condition).holds(value) is holds


@pytest.mark.parametrize("condition", ["", " ", "!", "in()", "in(a,)", "!in()", "in(a", "in(a,b"])
def test_bad_conditions_are_refused(condition: str) -> None:
    with pytest.raises(ValueError, match="label condition"):
        parse_condition(condition)


def test_all_conditions_must_hold() -> None:
    labels = {"zone": "a", "market": "spot"}
    assert matches({}, labels)
    assert matches({"zone": "a", "market": "!on-demand"}, labels)
    assert not matches({"zone": "a", "market": "on-demand"}, labels)


def test_a_bad_selector_names_its_key() -> None:
    with pytest.raises(ValueError, match="label 'zone'"):
        check_selector({"zone": "in("})
    with pytest.raises(ValueError, match="empty key"):
        check_selector({"": "a"})
    check_selector({"zone": "in(a,b)"})


@given(st.sets(st.text("abc", min_size=1), min_size=1), st.text("abc", min_size=1))
def test_negation_is_the_opposite(values: set[str], value: str) -> None:
    text = "in(" + ",".join(sorted(values)) + ")"
    assert parse_condition(text).holds(value) is (value in values)
    assert parse_condition("!" + text).holds(value) is (value not in values)
