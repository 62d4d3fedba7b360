"""Which zygotes with preloaded modules a node has."""

from __future__ import annotations

from runtime._core.preloading import Preloading, ZygoteUse

USED = ZygoteUse(True, 0.0)


def unused(forked_at: float) -> ZygoteUse:
    return ZygoteUse(False, forked_at)


def test_there_are_zygotes_up_to_the_limit() -> None:
    preloading: Preloading[str] = Preloading(2)
    assert preloading.admits("a", {})
    assert preloading.admits("b", {"a": USED})
    assert not preloading.admits("c", {"a": USED, "b": USED})
    assert preloading.admits("b", {"a": USED, "b": USED})
    assert preloading.makes_room({"a": unused(1)}) is None


def test_the_longest_unused_one_makes_room() -> None:
    preloading: Preloading[str] = Preloading(2)
    present = {"a": unused(7), "b": unused(5)}
    assert preloading.admits("c", present)
    assert preloading.makes_room(present) == "b"
    assert preloading.makes_room({"a": unused(7), "b": USED}) == "a"


def test_a_refused_one_stays_so_while_its_environment_is_needed() -> None:
    preloading: Preloading[str] = Preloading(2)
    preloading.refuse("a")
    preloading.keep(["a", "b"])
    assert not preloading.admits("a", {})
    preloading.keep(["b"])
    assert preloading.admits("a", {})


def test_no_limit_at_all_means_none() -> None:
    preloading: Preloading[str] = Preloading(0)
    assert not preloading.admits("a", {})
