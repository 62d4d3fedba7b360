"""What programs do with references, one habit at a time, each on several random networks.

Every run ends with the check that nothing is left anywhere, so a scenario only says what must still work.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from runtime import exceptions
from runtime._process import core_worker
from runtime.actor import ActorClass, ActorHandle
from runtime.object_ref import ObjectRef
from runtime.remote_function import RemoteFunction
from tests.sim.processes.process import INLINE_BYTES
from tests.sim.processes.program import here
from tests.sim.processes.runs import Main, simulate

BIG = b"." * (2 * INLINE_BYTES)
seeds = pytest.mark.parametrize("seed", range(5))


def put(value: Any) -> ObjectRef:
    return core_worker.current().objects.put(value)


def get(ref: ObjectRef) -> Any:
    return core_worker.current().reader.get([ref], None)[0]


def pause(seconds: float) -> None:
    fiber = here().world.fiber
    assert fiber is not None
    fiber.pause(seconds)


def run(seed: int, *mains: Main) -> None:
    simulate(seed, lambda _world: mains)


# ---------------------------------------------------------------- tasks


def make(size: int = 0) -> dict[str, Any]:
    return {"ref": put("made"), "pad": BIG * size}


def pass_on(refs: list[ObjectRef]) -> list[ObjectRef]:
    return refs


def look(refs: list[ObjectRef]) -> list[Any]:
    return [get(ref) for ref in refs]


def look_further(refs: list[ObjectRef], hops: int) -> Any:
    if not hops:
        return look(refs)
    return get(LOOK_FURTHER.remote(refs, hops - 1))


def keep_and_fail(refs: list[ObjectRef]) -> None:
    here().state.extend(refs)
    raise KeyError("kept")


def slow() -> dict[str, Any]:
    pause(1.0)
    return make()


def made_and_then_failed(count: int) -> Iterator[dict[str, Any]]:
    for _ in range(count):
        yield make()
    raise KeyError("over")


def fail_with(refs: list[ObjectRef]) -> None:
    raise KeyError(refs[0])


class Keeper:
    """Keeps references and handles for as long as it lives."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def keep(self, items: list[Any]) -> None:
        self.kept.extend(items)

    def look(self) -> Any:
        return get(self.kept[0])

    def give(self) -> list[Any]:
        kept, self.kept = self.kept, []
        return kept

    def ping(self) -> str:
        return "here"


MAKE, PASS_ON, LOOK, SLOW = (RemoteFunction(function, {}) for function in (make, pass_on, look, slow))
LOOK_FURTHER, KEEP_AND_FAIL = RemoteFunction(look_further, {}), RemoteFunction(keep_and_fail, {})
MADE_AND_THEN_FAILED = RemoteFunction(made_and_then_failed, {})
FAIL_WITH = RemoteFunction(fail_with, {"max_retries": 0})
KEEPER = ActorClass(Keeper, {})


# ---------------------------------------------------------------- results


@seeds
@pytest.mark.parametrize("size", [0, 1], ids=["inline", "stored"])
def test_a_result_that_nobody_waits_for_is_freed(seed: int, size: int) -> None:
    def main() -> None:
        for _ in range(5):
            MAKE.remote(size)
        pause(1.0)

    run(seed, main)


@seeds
@pytest.mark.parametrize("size", [0, 1], ids=["inline", "stored"])
def test_what_is_inside_a_result_outlives_it(seed: int, size: int) -> None:
    def main() -> None:
        inner = get(MAKE.remote(size))["ref"]
        pause(1.0)
        assert get(inner) == "made"

    run(seed, main)


@seeds
def test_a_value_that_comes_after_its_reference_is_gone(seed: int) -> None:
    def main() -> None:
        outer = get(PASS_ON.remote([SLOW.remote()]))[0]
        core_worker.current().waiter.wait([outer], 1, 0.01)
        del outer
        pause(3.0)

    run(seed, main)


# ---------------------------------------------------------------- arguments


@seeds
def test_arguments_live_while_the_call_does(seed: int) -> None:
    def main() -> None:
        result = LOOK.remote([put("a"), put(BIG)])
        assert get(result) == ["a", BIG]

    run(seed, main)


@seeds
@pytest.mark.parametrize("hops", [1, 3])
def test_borrowing_through_several_hops(seed: int, hops: int) -> None:
    def main() -> None:
        assert get(LOOK_FURTHER.remote([put("far"), put({"deep": [put("inner")]})], hops))[0] == "far"

    run(seed, main)


@seeds
def test_a_failed_task_may_have_kept_its_arguments(seed: int) -> None:
    def main() -> None:
        with pytest.raises(KeyError):
            get(KEEP_AND_FAIL.remote([put("kept")]))
        pause(1.0)

    run(seed, main)


@seeds
def test_a_chain_of_values_inside_values(seed: int) -> None:
    def main() -> None:
        ref = put("innermost")
        for _ in range(10):
            ref = put([ref])
        [ref] = get(PASS_ON.remote([ref]))
        for _ in range(10):
            [ref] = get(ref)
        assert get(ref) == "innermost"

    run(seed, main)


@seeds
def test_a_reference_that_goes_around_comes_back(seed: int) -> None:
    def main() -> None:
        ref = put("mine")
        for _ in range(3):
            [ref] = get(PASS_ON.remote([ref]))
        assert get(ref) == "mine"

    run(seed, main)


@seeds
def test_a_reference_in_an_error_stays_alive(seed: int) -> None:
    """It is never freed while the process lives that raised the error: nobody counts who has the error."""

    def main() -> None:
        with pytest.raises(exceptions.RayTaskError) as caught:
            get(FAIL_WITH.remote([put("evidence")]))
        pause(1.0)
        assert caught.value.cause is not None
        assert get(caught.value.cause.args[0]) == "evidence"
        for process in here().cluster.processes[1:]:
            process.world.at(0.0, process.kill)
        here().cluster.lossy = True

    run(seed, main)


# ---------------------------------------------------------------- streams


@seeds
def test_references_inside_items(seed: int) -> None:
    def main() -> None:
        inner = []
        stream = MADE_AND_THEN_FAILED.remote(3)
        for _ in range(3):
            inner.append(get(next(stream))["ref"])
        with pytest.raises(KeyError):
            get(next(stream))
        with pytest.raises(StopIteration):
            next(stream)
        pause(1.0)
        assert [get(ref) for ref in inner] == ["made"] * 3

    run(seed, main)


@seeds
def test_items_that_nobody_takes_are_freed(seed: int) -> None:
    def main() -> None:
        stream = MADE_AND_THEN_FAILED.remote(5)
        next(stream)
        del stream
        pause(1.0)

    run(seed, main)


# ---------------------------------------------------------------- actors


@seeds
def test_an_actor_keeps_what_it_was_given(seed: int) -> None:
    def main() -> None:
        keeper = KEEPER.remote()
        get(keeper.keep.remote([put("kept")]))
        pause(1.0)
        assert get(keeper.look.remote()) == "kept"

    run(seed, main)


@seeds
def test_an_actor_gives_its_last_reference_away(seed: int) -> None:
    def main() -> None:
        keeper = KEEPER.remote()
        get(keeper.keep.remote([put("kept")]))
        [ref] = get(keeper.give.remote())
        pause(1.0)
        assert get(ref) == "kept"

    run(seed, main)


@seeds
def test_a_handle_may_come_to_a_process_again_and_again(seed: int) -> None:
    """The last one there goes, and the next one counts all the same."""

    def main() -> None:
        keeper, friend = KEEPER.remote(), KEEPER.remote()
        for _ in range(3):
            get(friend.keep.remote([keeper]))
            [back] = get(friend.give.remote())
            assert isinstance(back, ActorHandle)
            del back
            pause(0.5)
        get(friend.keep.remote([keeper]))
        del keeper
        pause(1.0)
        [back] = get(friend.give.remote())
        assert get(back.ping.remote()) == "here"

    run(seed, main)


@seeds
def test_two_drivers_share_workers(seed: int) -> None:
    def main() -> None:
        for _ in range(3):
            assert get(LOOK.remote([put("shared")])) == ["shared"]
            assert get(get(MAKE.remote(1))["ref"]) == "made"

    run(seed, main, main)
