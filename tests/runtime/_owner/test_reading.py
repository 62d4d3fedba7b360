"""What a reader remembers of objects that were lost."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from runtime import exceptions
from runtime._owner import reading
from runtime._owner.links import Links
from runtime._owner.reading import MAX_REBUILDS, Reader


def lost(number: int) -> Any:
    """An entry of another process's object whose copies are gone."""
    value = SimpleNamespace(locations=[])
    return SimpleNamespace(object_id=bytes([number]) * 28, owner=b"owner", value=value)


def ask_again(reader: Reader, entry: Any) -> exceptions.ObjectLostError | None:
    entry.value = SimpleNamespace(locations=[])
    error = exceptions.ObjectLostError(entry.object_id.hex(), None, "")
    return reader.rebuild_lost(entry, entry.value, error)


def test_an_owner_is_not_asked_for_ever_and_few_objects_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "_MAX_COUNTED", 3)
    asked: list[bytes] = []
    owner = SimpleNamespace(call=lambda message, _: asked.append(message.object_id))
    links = SimpleNamespace(lock=threading.RLock(), peer=lambda _: owner)
    unused: Any = None
    reader = Reader(cast(Links, links), *[unused] * 6)
    entry = lost(0)
    for _ in range(MAX_REBUILDS):
        assert ask_again(reader, entry) is None
    assert ask_again(reader, entry) is not None
    assert len(asked) == MAX_REBUILDS
    for number in range(1, 10):
        ask_again(reader, lost(number))
    assert len(reader._lost_again) == 3
