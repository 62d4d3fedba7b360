"""A message over the limit fails what it was for: connections that others use go on."""

from __future__ import annotations

import importlib
import os
from typing import Any

import pytest

from runtime._transport import connection
from tests.under_test import NAME, OWN, exceptions, ray

pytestmark = [
    pytest.mark.usefixtures("session"),
    pytest.mark.skipif(not OWN, reason="it lowers this engine's own limit"),
]
SMALL = 200_000
WORDS = f"bytes, and one message may have at most {SMALL}"


@ray.remote
def pid(*_: Any) -> int:
    return os.getpid()


@ray.remote
class Actor:
    def pid(self, *_: Any) -> int:
        return os.getpid()


@pytest.fixture
def small_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process sends messages of at most `SMALL` bytes."""
    monkeypatch.setattr(connection, "MAX_FRAME_BYTES", SMALL)


@pytest.fixture(scope="module")
def values(session: None) -> list[Any]:
    """References to values that travel within a message, and together are too much for one."""
    return [ray.put(bytes(25_000)) for _ in range(20)]


def test_a_task_with_too_many_arguments(values: list[Any], small_messages: None) -> None:
    before = ray.get([pid.remote() for _ in range(4)])
    with pytest.raises(exceptions.RaySystemError, match=f"task .*pid could not be sent.*{WORDS}"):
        ray.get(pid.remote(*values), timeout=30)
    assert set(ray.get([pid.remote(values[0]) for _ in range(4)], timeout=30)) & set(before)


def test_an_actors_call_with_too_many_arguments(values: list[Any], small_messages: None) -> None:
    actor = Actor.remote()
    before = ray.get(actor.pid.remote())
    large, after = actor.pid.remote(*values), actor.pid.remote()
    with pytest.raises(exceptions.RaySystemError, match=rf"call of Actor\.pid could not be sent.*{WORDS}"):
        ray.get(large, timeout=30)
    assert ray.get(after, timeout=30) == before


def test_an_actors_constructor_with_too_many_arguments(values: list[Any], small_messages: None) -> None:
    @ray.remote
    class Wide:
        def __init__(self, *_: Any) -> None:
            pass

        def ok(self) -> bool:
            return True

    actor = Wide.remote(*values)
    with pytest.raises(exceptions.RayActorError, match=WORDS):
        ray.get(actor.ok.remote(), timeout=30)
    assert ray.get(pid.remote(), timeout=30)


def test_a_result_that_is_too_much() -> None:
    @ray.remote(num_returns=20)
    def many() -> list[bytes]:
        from runtime._transport import connection

        before, connection.MAX_FRAME_BYTES = connection.MAX_FRAME_BYTES, SMALL
        values.append(before)
        return [bytes(25_000)] * 20

    @ray.remote
    def restore() -> int:
        from runtime._transport import connection
        from runtime._wire.framing import MAX_FRAME_BYTES

        connection.MAX_FRAME_BYTES = MAX_FRAME_BYTES
        return os.getpid()

    values: list[int] = []
    for ref in many.remote():
        with pytest.raises(exceptions.RaySystemError, match=WORDS):
            ray.get(ref, timeout=30)
    assert ray.get([restore.remote() for _ in range(8)], timeout=30)


def test_an_entry_of_the_key_value_store(small_messages: None) -> None:
    kv: Any = importlib.import_module(f"{NAME}.experimental.internal_kv")
    with pytest.raises(exceptions.RaySystemError, match=f"KvPut has 2000.. {WORDS}"):
        kv._internal_kv_put(b"large", bytes(SMALL))
    assert kv._internal_kv_put(b"small", b"value") is False
    assert ray.get(pid.remote(), timeout=30)
