"""What the keeper does comes one thing after another; tidying goes on beside it."""

from __future__ import annotations

from typing import Any, cast

from runtime._controllers.controller import Effect, Perform
from runtime.train._core.keeping import Keeping
from runtime.train._core.plan import Keeper
from runtime.train._core.reports import Complete


class Names:
    """A keeper whose methods are their names."""

    def __getattr__(self, name: str) -> str:
        return name


def keeping() -> Keeping:
    return Keeping(cast(Keeper, Names()))


def begun(effects: list[Effect]) -> list[Any]:
    return [(each.key, *each.args) for each in effects if isinstance(each, Perform)]


def test_one_thing_at_a_time() -> None:
    desk = keeping()
    assert begun(desk.put("open", print)) == [(("keeper", "open"),)]
    assert begun(desk.put("close", print, (1,))) == []
    assert "open" in desk.waits(0.0)[0].what
    first, effects = desk.done()
    assert first.key == ("keeper", "open")
    assert begun(effects) == [(("keeper", "close"), 1)]
    assert not desk.is_idle
    assert desk.done()[1] == []
    assert desk.is_idle


def test_reports_that_come_while_others_are_kept_are_the_next_batch() -> None:
    desk, reports = keeping(), [Complete(number, []) for number in range(4)]
    assert begun(desk.keep(reports[:1])) == [(("keeper", "keep"), reports[:1])]
    assert desk.keep(reports[1:2]) == desk.keep(reports[2:]) == []
    desk.done()
    assert not desk.is_idle
    assert begun(desk.keep()) == [(("keeper", "keep"), reports[1:])]
    desk.drop()
    assert desk.is_idle


def test_tidying_takes_all_that_has_come_meanwhile_and_holds_up_nothing() -> None:
    desk = keeping()
    assert desk.tidy(None) == []
    assert begun(desk.tidy("a")) == [("tidy", ["a"])]
    assert desk.tidy("b") == desk.tidy("c") == []
    assert begun(desk.put("keep", print)) == [(("keeper", "keep"),)]
    assert not desk.is_tidy
    assert begun(desk.tidied()) == [("tidy", ["b", "c"])]
    assert desk.tidied() == []
    assert desk.is_tidy
