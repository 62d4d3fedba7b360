from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.rllib import utils
from runtime.rllib.utils.nested import flatten_dict, force_list, force_tuple, merge_dicts, unflatten_dict

nested_dicts = st.recursive(
    st.integers(),
    lambda inner: st.dictionaries(st.text("abc", min_size=1, max_size=2), inner, min_size=1),
    max_leaves=8,
).filter(lambda value: isinstance(value, dict))


@settings(max_examples=50, deadline=None)
@given(nested_dicts)
def test_flat_dicts_come_back_nested(nested: dict[str, Any]) -> None:
    flat = flatten_dict(nested)
    assert not any(isinstance(value, dict) for value in flat.values())
    assert unflatten_dict(flat) == nested


def test_one_item_or_none_becomes_a_list() -> None:
    assert force_list() == []
    assert force_list("ab") == ["ab"]
    assert force_list((1, 2)) == [1, 2]
    assert force_list([1], to_tuple=True) == force_tuple(1) == (1,)


def test_dicts_are_merged_below_the_first_level() -> None:
    first = {"a": {"b": 1, "c": 2}, "d": 3}
    assert merge_dicts(first, {"a": {"c": 4}, "d": {"e": 5}}) == {"a": {"b": 1, "c": 4}, "d": {"e": 5}}
    assert first["a"] == {"b": 1, "c": 2}


def test_names_are_imported_on_first_use() -> None:
    assert all(callable(getattr(utils, name)) for name in utils.__all__ if name.islower())
    assert set(utils.__all__) <= set(dir(utils))
    with pytest.raises(AttributeError, match="no_such"):
        utils.no_such  # noqa: B018
