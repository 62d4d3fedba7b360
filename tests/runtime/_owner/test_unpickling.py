"""Whatever goes wrong with a value is one kind of error."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from runtime import exceptions
from runtime._owner.unpickling import unpickle, unpickle_all


def refuse() -> None:
    raise KeyError("a class of the user's")


def refuse_as_the_engine() -> None:
    raise exceptions.ObjectLostError("00" * 28, b"", "")


class Made:
    """Pickles as a call."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call

    def __reduce__(self) -> Any:
        return self._call, ()


def unpickle_among_others(data: bytes) -> Any:
    return unpickle_all([pickle.dumps(1), data])


both = pytest.mark.parametrize("read", [unpickle, unpickle_among_others])


def test_values() -> None:
    assert unpickle(pickle.dumps([1])) == ([1], [])
    assert unpickle_all([pickle.dumps(1), pickle.dumps("two")]) == ([1, "two"], [])


@both
@pytest.mark.parametrize("data", [b"", b"no pickle", pickle.dumps(Made(refuse))])
def test_what_cannot_be_unpickled(read: Callable[[bytes], Any], data: bytes) -> None:
    with pytest.raises(exceptions.RaySystemError) as caught:
        read(data)
    assert caught.value.__cause__ is not None
    assert type(caught.value.__cause__).__name__ in str(caught.value)  # it tells what happened


@both
def test_errors_of_the_engine_stay_what_they_are(read: Callable[[bytes], Any]) -> None:
    with pytest.raises(exceptions.ObjectLostError):
        read(pickle.dumps(Made(refuse_as_the_engine)))
