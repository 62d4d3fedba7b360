"""The n-th reports of all ranks belong together, however far apart they come."""

import itertools

import pytest

from runtime.train._core.records import (
    Asked,
    Joined,
    Record,
    Reported,
    Returned,
    Uploaded,
    Wanted,
    decode,
    decoded,
    encode,
)
from runtime.train._core.reports import Ledger


def reported(number: int, rank: int = 0, checkpoint: str = "", is_waiting: bool = False) -> Reported:
    return Reported(number, b"%d.%d" % (rank, number), checkpoint, is_waiting)


def test_records_travel() -> None:
    records: list[Record] = [
        Joined(),
        Reported(0, b"m", "c", True, b"v"),
        Uploaded(1, b"p"),
        Asked(2, "barrier", b""),
        Wanted(-1, 3),
        Returned(b"x", True),
    ]
    assert decode(encode(records)) == records


def test_a_report_is_complete_when_every_rank_has_given_it() -> None:
    ledger = Ledger(2)
    for number in range(3):
        ledger.report(0, reported(number))
    assert ledger.take_complete() == []
    ledger.report(1, reported(0, 1))
    ledger.report(1, reported(1, 1))
    complete = ledger.take_complete()
    assert [(one.number, one.metrics) for one in complete] == [(0, [b"0.0", b"1.0"]), (1, [b"0.1", b"1.1"])]
    assert ledger.completed == 2


def test_a_checkpoint_is_complete_with_all_its_parts() -> None:
    for order in itertools.permutations(range(4)):
        ledger = Ledger(2)
        events = [
            lambda ledger=ledger: ledger.report(0, reported(0, 0, "c")),
            lambda ledger=ledger: ledger.report(1, reported(0, 1, "c")),
            lambda ledger=ledger: ledger.upload(0, 0, b"p0"),
            lambda ledger=ledger: ledger.upload(1, 0, b"p1"),
        ]
        for index in order[:-1]:
            events[index]()
            assert ledger.take_complete() == []
        events[order[-1]]()
        (complete,) = ledger.take_complete()
        assert (complete.checkpoint, complete.parts) == ("c", [b"p0", b"p1"])


def test_a_report_after_one_whose_files_are_missing_waits_for_it() -> None:
    ledger = Ledger(1)
    ledger.report(0, reported(0, 0, "c"))
    ledger.report(0, reported(1))
    assert ledger.take_complete() == []
    ledger.upload(0, 0, b"p")
    assert [one.number for one in ledger.take_complete()] == [0, 1]


def test_questions_are_answered_with_what_all_ranks_said() -> None:
    ledger = Ledger(2)
    ledger.ask(1, Asked(0, "broadcast", b""))
    assert ledger.take_answers() == []
    assert ledger.waiting() == {1: {0}}
    ledger.ask(0, Asked(0, "broadcast", b"x"))
    ((number, said),) = ledger.take_answers()
    assert (number, decoded(said)) == (0, [b"x", b""])
    ledger.ask(0, Asked(1, "barrier", b""))
    ledger.ask(1, Asked(1, "broadcast", b""))
    with pytest.raises(ValueError, match=r"rank 0 is in barrier\(\), rank 1 is in broadcast\(\)"):
        ledger.take_answers()


def test_who_waits_for_whom() -> None:
    ledger = Ledger(3)
    ledger.report(0, reported(0))
    assert ledger.waiting() == {}
    ledger.report(0, reported(1, 0, "c", is_waiting=True))
    ledger.report(1, reported(0, 1))
    assert ledger.waiting() == {0: {1, 2}}
    ledger.report(1, reported(1, 1))
    assert ledger.waiting() == {0: {2}}
    assert ledger.divergence() == ""
    ledger.returned(2)
    assert "Rank 0 reports a checkpoint in its report 2" in ledger.divergence()
    assert "rank 2 after 0 reports" in ledger.divergence()


def test_a_checkpoint_that_not_all_reported_is_named_at_the_end() -> None:
    ledger = Ledger(2)
    ledger.report(0, reported(0))
    assert ledger.left_over() == ""
    ledger.report(0, reported(1, 0, "c"))
    assert "Rank 0 has a checkpoint in its report 2" in ledger.left_over()
    assert "rank 0: 2, rank 1: 0" in ledger.left_over()
