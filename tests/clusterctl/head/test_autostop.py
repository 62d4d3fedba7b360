"""When a cluster ends by itself."""

from __future__ import annotations

import pytest

from clusterctl.head.autostop import Facts, Idleness, uses
from clusterctl.spec.definition import Autostop

TEN = Autostop(idle_minutes=10)


def test_nothing_to_do_is_idle() -> None:
    assert uses(Facts()) == []


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (Facts(jobs=["job-1"]), "jobs: job-1"),
        (Facts(drivers=1), "1 program is connected"),
        (Facts(working=2), "2 nodes work"),
        (Facts(waiting=3), "3 requests wait or hold their place"),
        (Facts(setups=["w-1"]), "being set up: w-1"),
        (Facts(log_ins=["ann by SSH (pts/0)"]), "log-ins: ann by SSH (pts/0)"),
        (Facts(unknown=["who is logged in"]), "not known: who is logged in"),
    ],
)
def test_every_use_counts_and_is_named(facts: Facts, words: str) -> None:
    assert uses(facts) == [words]


def test_it_is_over_after_the_whole_time_without_a_break() -> None:
    idle = Idleness(0.0).after(Facts(), 300.0)
    assert not idle.is_over(TEN, 599.0)
    assert idle.is_over(TEN, 600.0)


def test_a_use_begins_the_time_anew() -> None:
    idle = Idleness(0.0).after(Facts(jobs=["job-1"]), 599.0)
    assert not idle.after(Facts(), 1198.0).is_over(TEN, 1198.0)
    assert idle.after(Facts(), 1199.0).is_over(TEN, 1199.0)


def test_what_is_not_known_counts_as_use() -> None:
    assert not Idleness(0.0).after(Facts(unknown=["anything"]), 6000.0).is_over(TEN, 6000.0)


def test_a_request_that_changed_something_begins_the_time_anew() -> None:
    idle = Idleness(0.0).after(Facts(touched_s=500.0), 600.0)
    assert not idle.is_over(TEN, 1099.0)
    assert idle.is_over(TEN, 1100.0)
