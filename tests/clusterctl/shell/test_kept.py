"""Which session is given out again, and that each other is closed."""

from __future__ import annotations

from typing import cast

import pytest

from clusterctl.shell import kept
from clusterctl.shell.channel import Channel
from clusterctl.shell.kept import Kept


class Session:
    is_open = True
    is_closed = False

    def close(self) -> None:
        self.is_closed = True


def session() -> Channel:
    return cast(Channel, Session())


def is_closed(channel: Channel) -> bool:
    return cast(Session, channel).is_closed


def test_one_is_kept_and_given_out_once() -> None:
    place, first, second = Kept(), session(), session()
    assert place.take() is None
    place.put(first, place.age)
    place.put(second, place.age)
    assert is_closed(second)
    assert place.take() is first
    assert place.take() is None
    assert not is_closed(first)


def test_one_that_waited_for_long_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    place, old = Kept(), session()
    place.put(old, place.age)
    monkeypatch.setattr(kept, "_FRESH_S", 0.0)
    assert place.take() is None
    assert is_closed(old)


def test_one_that_ended_is_not_used() -> None:
    place, ended = Kept(), session()
    place.put(ended, place.age)
    cast(Session, ended).is_open = False
    assert place.take() is None
    assert is_closed(ended)


def test_one_of_an_earlier_age_is_not_used() -> None:
    place, waiting, busy = Kept(), session(), session()
    place.put(waiting, place.age)
    age = place.age
    place.end_age()
    assert is_closed(waiting)
    assert place.take() is None
    place.put(busy, age)
    assert is_closed(busy)
    assert place.take() is None
