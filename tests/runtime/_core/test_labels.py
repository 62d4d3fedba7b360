from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime._core.labels import (
    EXISTS,
    MISSING,
    check_fallbacks,
    check_key,
    check_labels,
    check_selector,
    matches,
    one_of,
    parse_condition,
    parse_labels,
)


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


@pytest.mark.parametrize("condition", ["in(a", "in(a,b", "!in(", "of(a)"])
def test_bad_conditions_are_refused(condition: str) -> None:
    with pytest.raises(ValueError, match="Invalid label selector value"):
        parse_condition(condition)


def test_the_key_alone() -> None:
    assert parse_condition(EXISTS).holds("anything")
    assert not parse_condition(EXISTS).holds(None)
    assert parse_condition(MISSING).holds(None)
    assert not parse_condition(MISSING).holds("")


def test_one_of_values() -> None:
    assert parse_condition(one_of(["a", "b"])).holds("b")
    assert not parse_condition(one_of(["a", "b"], negated=True)).holds("b")
    assert parse_condition(one_of(["a"], negated=True)).holds(None)


@pytest.mark.parametrize("value", ["no label, is so", "", "a(b)"])
def test_a_value_that_no_label_has_is_found_nowhere(value: str) -> None:
    assert not parse_condition(one_of([value])).holds(value)
    assert parse_condition(one_of([value], negated=True)).holds("a")


def test_all_conditions_must_hold() -> None:
    labels = {"zone": "a", "market": "spot"}
    assert matches({}, labels)
    assert matches({"zone": "a", "market": "!on-demand"}, labels)
    assert not matches({"zone": "a", "market": "on-demand"}, labels)


@pytest.mark.parametrize(
    "key", ["a", "a-b_c.d", "ray.io/accelerator-type", "A1", "x" * 63, "sub.domain.example/name", "1/2"]
)
def test_keys(key: str) -> None:
    check_key(key)
    check_labels({key: "v"})


@pytest.mark.parametrize("key", ["", "-a", "a-", "a b", "x" * 64, "a@b", "pre_/a", "a/", "y" * 254 + "/a"])
def test_what_is_no_key(key: str) -> None:
    with pytest.raises(ValueError, match="Invalid label key"):
        check_selector({key: "v"})


@pytest.mark.parametrize("value", ["", "v", "a.b-c_D", "0"])
def test_values(value: str) -> None:
    check_labels({"key": value})


@pytest.mark.parametrize("value", ["-v", "v_", "a b", "v" * 64, "a,b", "!v"])
def test_what_is_no_value(value: str) -> None:
    with pytest.raises(ValueError, match="Invalid label key value"):
        check_labels({"key": value})


@pytest.mark.parametrize(
    "text", ["", "spot", "!GPU", "213521", "in(A123, B456, C789)", "!in(spot, on-demand)", "(a,b)"]
)
def test_conditions_that_users_may_write(text: str) -> None:
    check_selector({"key": text})
    parse_condition(text)


@pytest.mark.parametrize(
    "text",
    ["-spot", "spot_", "in()", "in(spot,", "in(H100, TPU!GPU)", "!!!in(H100, TPU)", "!", EXISTS, "a b"],
)
def test_conditions_that_users_may_not_write(text: str) -> None:
    with pytest.raises(ValueError, match="Invalid label selector value"):
        check_selector({"key": text})


@pytest.mark.parametrize("selector", [{1: "a"}, {"a": 1}, {"a": None}])
def test_selectors_are_of_strings(selector: Any) -> None:
    with pytest.raises(TypeError):
        check_selector(selector)


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("", {}),
        ("{}", {}),
        ("a=b", {"a": "b"}),
        (" a = b , ray.io/x= ", {"a": "b", "ray.io/x": ""}),
        ('{"a": "b"}', {"a": "b"}),
    ],
)
def test_labels_as_text(text: str, labels: dict[str, str]) -> None:
    assert parse_labels(text) == labels


@pytest.mark.parametrize("text", ["a", "a=b=c", "-a=b", "a=b c", '{"a": 1}', "{", '{"a b": "c"}'])
def test_what_is_no_text_of_labels(text: str) -> None:
    with pytest.raises(ValueError):
        parse_labels(text)


def test_fallbacks() -> None:
    check_fallbacks([])
    check_fallbacks([{"label_selector": {"a": "b"}}, {"label_selector": {}}, {"label_selector": None}])


@pytest.mark.parametrize(
    ("fallbacks", "words"),
    [
        ([1], "must be a dictionary"),
        ([{}], "Empty dictionary"),
        ([{"memory": 1}], "Unsupported option found: 'memory'"),
        ([{"label_selector": ["a"]}], "must be a dictionary"),
        ([{"label_selector": {"a": "-b"}}], "Invalid label selector value"),
    ],
)
def test_wrong_fallbacks(fallbacks: list[Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        check_fallbacks(fallbacks)


@given(st.from_regex(r"[a-zA-Z0-9]([a-zA-Z0-9_.-]{0,20}[a-zA-Z0-9])?", fullmatch=True))
def test_whatever_labels_a_node_can_select_it(value: str) -> None:
    check_labels({"key": value})
    for text in (value, f"in({value})", one_of([value])):
        check_selector({"key": text})
        assert matches({"key": text}, {"key": value})


@given(st.sets(st.text("abc", min_size=1), min_size=1), st.text("abc", min_size=1))
def test_negation_is_the_opposite(values: set[str], value: str) -> None:
    text = "in(" + ",".join(sorted(values)) + ")"
    assert parse_condition(text).holds(value) is (value in values)
    assert parse_condition("!" + text).holds(value) is (value not in values)
