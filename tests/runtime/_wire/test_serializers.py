"""Serializers that libraries register."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from runtime._extension import serialization as door
from runtime._wire import serialization, serializers


class Frame:
    """A value of a library."""

    def __init__(self, cells: list[int]) -> None:
        self.cells = cells

    def __reduce__(self) -> Any:
        raise TypeError("its own pickling is too slow")


def rebuild(cells: bytes) -> Frame:
    return Frame(list(cells))


def reduce(value: Any) -> Any:
    return (rebuild, (bytes(value.cells),)) if type(value) is Frame else NotImplemented


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(serializers, "_modules", dict(serializers._modules))
    monkeypatch.setattr(serializers, "_reducers", dict(serializers._reducers))
    module: Any = types.ModuleType("frames_reducer")
    module.reduce = reduce
    monkeypatch.setitem(sys.modules, "frames_reducer", module)
    door.register("frames", "frames_reducer")
    return "frames"


def test_a_registered_module_is_used_once_its_library_is_imported(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TypeError, match="too slow"):
        serialization.serialize(Frame([1]))
    monkeypatch.setitem(sys.modules, library, types.ModuleType(library))
    serialized = serialization.serialize({"in": [Frame([1, 2])]})
    value, _ = serialization.deserialize(serialized.data, serialized.buffers)
    assert value["in"][0].cells == [1, 2]


def test_a_library_has_one_module(library: str) -> None:
    door.register(library, "frames_reducer")
    with pytest.raises(ValueError, match="frames_reducer already"):
        door.register(library, "another")
