"""Which copies of checkpoints are kept, and where."""

from __future__ import annotations

from runtime._controllers.controller import Call, Forget, ResultOf
from runtime.train._core.copies import Copies


def test_those_of_the_latest_committed_checkpoint_are_kept() -> None:
    copies = Copies()
    copies.add(0, 0, "a0")
    copies.add(0, 1, "a1")
    assert copies.results == ()
    assert copies.committed(0) == []
    copies.add(2, 1, "b1")
    assert copies.results == (ResultOf("a0"), ResultOf("a1"))
    assert copies.committed(2) == [Forget("a0"), Forget("a1")]
    assert copies.results == (ResultOf("b1"),)


def test_a_checkpoint_without_copies_leaves_none_of_earlier_ones() -> None:
    copies = Copies()
    copies.add(0, 0, "a")
    copies.add(1, 0, "b")
    copies.add(4, 0, "c")
    copies.committed(0)
    assert copies.committed(3) == [Forget("a"), Forget("b")]
    assert copies.results == ()
    copies.committed(4)
    assert copies.results == (ResultOf("c"),)


def test_the_end_of_an_attempt_leaves_the_latest_checkpoint() -> None:
    copies = Copies()
    copies.add(0, 0, "a")
    copies.committed(0)
    copies.add(1, 0, "b")
    assert copies.attempt_ended() == [Forget("b")]
    assert copies.results == (ResultOf("a"),)
    copies.add(0, 0, "c")  # numbers begin anew
    assert copies.committed(0) == [Forget("a")]
    assert copies.results == (ResultOf("c"),)


def test_second_copies_are_on_other_nodes() -> None:
    copies = Copies()
    for rank in range(3):
        copies.add(0, rank, rank)
    copies.committed(0)
    found = copies.hold(7, 0, ["w0", "w1", "w2"], ["x", "x", "y"])
    assert [(call.actor, call.args) for call in found if isinstance(call, Call)] == [
        ("w2", (7, 0, 0, (ResultOf(0),))),
        ("w2", (7, 0, 1, (ResultOf(1),))),
        ("w0", (7, 0, 2, (ResultOf(2),))),
    ]
    assert copies.hold(7, 0, ["w0", "w1", "w2"], ["x", "x", "x"]) == []
    assert copies.hold(7, 0, ["w0"], ["x"]) == []
