"""References as arguments: small values travel with the call, in whatever company, and all come alike."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tests.gate import Gate
from tests.polling import eventually
from tests.under_test import OWN, exceptions, ray

pytestmark = pytest.mark.usefixtures("session")


@ray.remote
def given(*args: Any, **kwargs: Any) -> Any:
    return described(args), described(kwargs)


@ray.remote(num_cpus=0)
class Sync:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.first = described(args), described(kwargs)

    def given_first(self) -> Any:
        return self.first

    def given(self, *args: Any, **kwargs: Any) -> Any:
        return described(args), described(kwargs)


@ray.remote(num_cpus=0)
class Async:
    async def given(self, *args: Any, **kwargs: Any) -> Any:
        return described(args), described(kwargs)


@ray.remote(num_cpus=0.01)
def after(gate: Any, value: Any) -> Any:
    ray.get(gate.pass_through.remote())
    return value


@ray.remote
def make(value: Any) -> Any:
    return value


@ray.remote
def lend() -> list[Any]:
    return [ray.put("lent"), make.remote("made")]


@ray.remote
def fail(what: str) -> None:
    raise ValueError(what)


class Unreadable:
    """Can be pickled, and never be read."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


def described(value: Any) -> Any:
    """What can be compared, and travels without anything special."""
    if isinstance(value, np.ndarray):
        return "array", value.shape, int(value.sum())
    if isinstance(value, ray.ObjectRef):
        return "reference", value.hex()
    if isinstance(value, tuple | list):
        return [described(item) for item in value]
    if isinstance(value, dict):
        return {key: described(item) for key, item in value.items()}
    return value


def test_every_company_gives_the_same() -> None:
    rng = random.Random(3)
    inner = ray.put("inner")
    lent = ray.get(lend.remote())
    gate = Gate.remote()
    late = [after.remote(gate, i) for i in range(3)]
    values: list[tuple[Any, Any]] = [  # what is passed, and what must come
        (1, 1),
        ("plain", "plain"),
        ([inner], [inner]),
        (np.arange(5), np.arange(5)),
        (ray.put(None), None),
        (ray.put("small"), "small"),
        (ray.put(np.arange(7)), np.arange(7)),
        (ray.put(np.arange(50_000)), np.arange(50_000)),
        (ray.put({"nested": inner}), {"nested": inner}),
        (ray.put(b"x" * 90_000), b"x" * 90_000),
        (b"y" * 90_000, b"y" * 90_000),
        (make.remote("result"), "result"),
        (make.remote(np.ones(50_000)), np.ones(50_000)),
        *zip(lent, ("lent", "made"), strict=True),
        *zip(late, range(3), strict=True),
    ]
    sync, asynchronous = Sync.remote(), Async.remote()
    calls: list[tuple[Any, Any]] = []
    for number in range(60):
        chosen = rng.choices(values, k=rng.randrange(7)) if number % 6 else rng.sample(values, len(values))
        named = {f"k{i}": pair for i, pair in enumerate(rng.choices(values, k=rng.randrange(3)))}
        args = [passed for passed, _ in chosen]
        kwargs = {key: passed for key, (passed, _) in named.items()}
        expected = described([came for _, came in chosen]), described({k: v[1] for k, v in named.items()})
        for call in (given.remote, sync.given.remote, asynchronous.given.remote):
            calls.append((call(*args, **kwargs), expected))
        if number % 20 == 0:
            made = Sync.remote(*args, **kwargs)
            calls.append((made.given_first.remote(), expected))
    ray.get(gate.open.remote())
    for result, expected in calls:
        assert ray.get(result, timeout=120) == expected


@pytest.mark.parametrize("place", [0, 1, 5])
def test_the_first_error_among_them_is_the_calls(place: int) -> None:
    refs = [ray.put(i) for i in range(5)]
    refs.insert(place, fail.remote("the first"))
    refs.append(fail.remote("another"))
    sync = Sync.remote()
    for call in (given.remote, sync.given.remote, Async.remote().given.remote):
        with pytest.raises(ValueError, match="the first"):
            ray.get(call(*refs), timeout=60)
    assert ray.get(sync.given.remote(1)) == ([1], {})


def test_what_cannot_be_read_is_the_calls_error() -> None:
    refs = [ray.put(1), ray.put(Unreadable()), ray.put(2)]
    sync = Sync.remote()
    for call in (given.remote, sync.given.remote, Async.remote().given.remote):
        with pytest.raises(exceptions.RayError, match="no number"):
            ray.get(call(*refs), timeout=60)
        assert ray.get(call(refs[0], 5, refs[2]), timeout=60) == ([1, 5, 2], {})


def test_they_come_again_with_a_retry(tmp_path: Any) -> None:
    mark = tmp_path / "ran"

    @ray.remote(max_retries=1, retry_exceptions=True)
    def once(*args: Any) -> Any:
        if not mark.exists():
            mark.touch()
            raise ValueError("the first time")
        return list(args)

    refs = [ray.put(i) for i in range(20)]
    assert ray.get(once.remote(*refs, "plain")) == [*range(20), "plain"]


def test_a_value_is_the_callees_own() -> None:
    @ray.remote
    def change(value: list[int]) -> list[int]:
        value.append(1)
        return value

    ref = ray.put([0])
    assert ray.get([change.remote(ref) for _ in range(3)]) == [[0, 1]] * 3
    assert ray.get(ref) == [0]


@pytest.mark.skipif(not OWN, reason="looks into the table of objects")
def test_they_are_held_until_the_call_is_over() -> None:
    from runtime._process.core_worker import current

    entries = current().objects.table.entries
    gate = Gate.remote()
    refs = [ray.put(i) for i in range(1000)]
    names = {ref.binary() for ref in refs}
    result = given.remote(after.remote(gate, "late"), *refs)
    cancelled = given.remote(after.remote(gate, "later"), *refs)
    ray.cancel(cancelled)
    del refs
    ray.get(make.remote(0))
    assert names <= set(entries)
    ray.get(gate.open.remote())
    assert ray.get(result, timeout=60) == (["late", *range(1000)], {})
    with pytest.raises(exceptions.TaskCancelledError):
        ray.get(cancelled, timeout=60)
    assert eventually(lambda: not names & set(entries))
