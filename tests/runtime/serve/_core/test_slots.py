"""Slots of a replica, lent and borrowed."""

from __future__ import annotations

from random import Random

import pytest

from runtime.serve._core.slots import Borrower, Lender
from runtime.serve._wire.messages import Grant, Recall


def lender(slots: int, *callers: str) -> Lender:
    made = Lender(slots)
    for caller in callers:
        assert made.connect(caller) == []
    return made


def borrower(*replicas: str, near: tuple[str, ...] = ()) -> Borrower:
    made = Borrower(Random(1))
    for replica in replicas:
        made.add(replica, replica in near, 5)
    return made


# ---------------------------------------------------------------- the replica's side


def test_free_slots_are_granted_as_wanted():
    replica = lender(3, "a", "b")
    assert replica.want("a", 2) == [("a", Grant(2))]
    assert (replica.lent, replica.ongoing) == (2, 0)
    assert replica.want("b", 2) == [("b", Grant(1, scarce=True))]
    assert replica.lent == 3


def test_a_request_takes_a_slot_and_its_caller_keeps_it_if_nobody_else_wants_it():
    replica = lender(1, "a")
    replica.want("a", 1)
    assert replica.begin("a")
    assert replica.ongoing == 1
    assert replica.end("a") == (True, [])
    assert (replica.lent, replica.ongoing) == (1, 0)
    assert replica.begin("a")


def test_a_request_without_a_slot_is_refused():
    replica = lender(1, "a")
    assert not replica.begin("a")
    assert not replica.begin("unknown")


def test_unused_slots_are_recalled_when_another_caller_wants_one():
    replica = lender(2, "a", "b")
    replica.want("a", 2)
    assert replica.begin("a")
    assert replica.begin("a")
    assert replica.end("a") == (True, [])
    assert replica.want("b", 1) == [("a", Recall()), ("b", Grant(0, scarce=True))]
    assert replica.want("b", 2) == [("b", Grant(0, scarce=True))], (
        "one recall is out already; the other slot is used"
    )
    assert replica.give_back("a", 1) == [("b", Grant(1, scarce=True))]


def test_a_slot_whose_request_is_about_to_come_is_not_recalled():
    replica = lender(1, "a", "b")
    replica.want("a", 1)
    assert replica.want("b", 1) == [("b", Grant(0, scarce=True))]
    assert replica.begin("a")
    assert replica.end("a") == (False, [("b", Grant(1))])


def test_a_slot_that_is_told_to_be_unused_is_recalled():
    replica = lender(1, "a", "b")
    replica.want("a", 1)
    replica.give_back("a", 0)
    assert replica.want("b", 1) == [("a", Recall()), ("b", Grant(0, scarce=True))]


def test_wanting_callers_get_slots_in_turns():
    replica = lender(1, "a", "b", "c")
    for caller in "abc":
        replica.want(caller, 2)
    served = ["a"]
    for _ in range(5):
        assert replica.begin(served[-1])
        _, effects = replica.end(served[-1])
        served += [str(caller) for caller, what in effects if isinstance(what, Grant)]
    assert served == list("aabcbc"), "a was first in turn when the others came"


def test_requests_of_a_caller_that_is_gone_keep_their_slots_until_they_end():
    replica = lender(1, "a", "b")
    replica.want("a", 1)
    replica.begin("a")
    assert replica.gone("a") == []
    assert replica.want("b", 1) == [("b", Grant(0, scarce=True))]
    assert replica.ongoing == 1
    assert replica.end("a") == (False, [("b", Grant(1))])


def test_unused_slots_of_a_caller_that_is_gone_are_free():
    replica = lender(1, "a", "b")
    replica.want("a", 1)
    replica.want("b", 1)
    assert replica.gone("a") == [("b", Grant(1))]


def test_more_slots_are_granted_at_once():
    replica = lender(1, "a")
    replica.want("a", 3)
    assert replica.resize(3) == [("a", Grant(2))]


def test_fewer_slots_come_back_as_requests_end():
    replica = lender(2, "a")
    replica.want("a", 2)
    replica.begin("a")
    replica.begin("a")
    assert replica.resize(1) == []
    assert replica.end("a") == (False, [])
    assert replica.end("a") == (True, [])
    assert replica.lent == 1


def test_draining_recalls_all_and_grants_none():
    replica = lender(2, "a", "b")
    replica.want("a", 2)
    replica.begin("a")
    assert replica.drain() == [("a", Recall())]
    assert replica.want("b", 1) == [("b", Grant(0, scarce=True))]
    assert replica.give_back("a", 1) == []
    assert not replica.is_idle
    assert replica.end("a") == (False, [])
    assert replica.is_idle


@pytest.mark.parametrize("slots", [2, -1])
def test_no_more_slots_than_are_unused_can_be_returned(slots):
    replica = lender(2, "a")
    replica.want("a", 2)
    replica.begin("a")
    with pytest.raises(ValueError, match="unused"):
        replica.give_back("a", slots)


def test_mistakes_of_the_replica_are_told():
    replica = lender(1, "a")
    with pytest.raises(ValueError, match="connected already"):
        replica.connect("a")
    with pytest.raises(ValueError, match="runs"):
        replica.end("a")


# ---------------------------------------------------------------- the caller's side


def test_a_request_waits_for_a_grant_and_is_sent_with_it():
    caller = borrower("r")
    assert caller.ask(1) is None
    assert caller.wants() == [("r", 1)]
    assert caller.wants() == []
    assert caller.granted("r", 1, scarce=False) == [1]
    assert caller.surplus("r", scarce=False) is None
    assert (caller.waiting, caller.running("r")) == (0, 1)


def test_a_slot_that_is_kept_serves_the_next_request_without_messages():
    caller = borrower("r")
    caller.ask(1)
    caller.wants()
    caller.granted("r", 1, scarce=False)
    assert caller.ended("r", keep=True) is None
    assert caller.in_hand("r") == 1
    assert caller.ask(2) == "r"
    assert caller.wants() == []


def test_requests_that_wait_are_served_in_order_and_shared_among_replicas():
    caller = borrower("r", "s")
    for request in range(5):
        assert caller.ask(request) is None
    assert sorted(caller.wants()) == [("r", 3), ("s", 3)]
    assert caller.granted("r", 3, scarce=False) == [0, 1, 2]
    assert caller.wants() == [("r", 1)], "two are left for two replicas"
    assert caller.granted("s", 3, scarce=False) == [3, 4]
    assert caller.surplus("s", scarce=False) == 0
    assert caller.wants() == [("r", 0)]


def test_a_slot_without_use_is_returned_if_others_want_it():
    caller = borrower("r")
    caller.ask(1)
    caller.wants()
    assert caller.forget(1)
    assert not caller.forget(1)
    assert caller.granted("r", 1, scarce=False) == []
    assert caller.surplus("r", scarce=True) == 1
    assert caller.in_hand("r") == 0


def test_replicas_on_this_node_come_first_then_the_less_busy_of_two():
    caller = borrower("far", "near", near=("near",))
    caller.granted("far", 2, scarce=False)
    caller.granted("near", 1, scarce=False)
    assert [caller.ask(request) for request in range(3)] == ["near", "far", "far"]
    caller = borrower("r", "s")
    caller.granted("r", 3, scarce=False)
    caller.granted("s", 3, scarce=False)
    chosen = [caller.ask(request) for request in range(6)]
    assert sorted(chosen[:2]) == ["r", "s"]
    assert sorted(chosen) == ["r"] * 3 + ["s"] * 3


def test_a_restricted_request_waits_for_its_replicas_and_others_pass_it():
    caller = borrower("r", "s")
    caller.granted("s", 2, scarce=False)
    assert caller.ask(1, {"r"}) is None
    assert caller.wants() == [("r", 1)]
    assert caller.ask(2) == "s"
    assert caller.allow(1, {"r", "s"}) == "s"
    assert caller.wants() == [("r", 0)]
    assert caller.allow(1, None) is None


def test_a_request_that_is_sent_again_goes_before_the_others():
    caller = borrower("r")
    caller.ask(1)
    caller.ask(2, first=True)
    assert caller.granted("r", 2, scarce=False) == [2, 1]


def test_requests_count_as_queued_once_replicas_are_known_to_be_full():
    caller = borrower("r")  # which has 5 slots
    for request in range(7):
        caller.ask(request)
    assert (caller.waiting, caller.queued) == (7, 2)
    caller.wants()
    caller.granted("r", 1, scarce=True)
    assert (caller.waiting, caller.queued) == (6, 6)
    caller.ended("r", keep=True)
    assert (caller.waiting, caller.queued) == (5, 1)


def test_a_slot_is_sought_of_a_replica_with_fewer_requests():
    caller = borrower("r")
    caller.granted("r", 5, scarce=False)
    caller.add("new", near=False, slots=5)
    for request in range(3):  # the other replica is chosen at random
        assert caller.ask(request) == "r"
    assert caller.seeks
    assert caller.wants() == [("new", 1)]
    assert caller.granted("new", 1, scarce=False) == []
    assert caller.surplus("new", scarce=False) == 0
    assert caller.wants() == []
    assert caller.ask(4) == "new"


def test_a_slot_that_is_not_there_is_sought_ever_more_rarely():
    caller = borrower("r", "full")
    caller.granted("r", 1000, scarce=False)
    tries = []
    for request in range(1000):
        assert caller.ask(request) == "r"
        if ("full", 1) in caller.wants():
            tries.append(request)
            assert caller.granted("full", 0, scarce=True) == []
            assert caller.wants() == [("full", 0)]
    assert 4 < len(tries) < 10
    assert tries[-1] - tries[-2] > 4 * (tries[1] - tries[0])


def test_a_far_replica_is_not_sought_while_a_near_one_serves():
    caller = borrower("near", "far", near=("near",))
    caller.granted("near", 20, scarce=False)
    for request in range(20):
        assert caller.ask(request) == "near"
    assert not caller.seeks


def test_a_recall_takes_what_is_unused():
    caller = borrower("r")
    caller.granted("r", 3, scarce=False)
    caller.ask(1)
    assert caller.recalled("r") == 2
    assert caller.recalled("r") == 0
    assert caller.ask(2) is None


def test_a_retired_replica_takes_no_new_requests():
    caller = borrower("r", "s")
    caller.granted("r", 2, scarce=False)
    assert caller.ask(1) == "r"
    assert caller.retire("r") == 1
    assert caller.ask(2) is None
    assert caller.wants() == [("s", 1)]
    assert caller.ended("r", keep=True) is None
    assert caller.recalled("r") == 1
    assert caller.replicas == ["s"]


def test_a_retired_replica_can_be_restored():
    caller = borrower("r")
    caller.retire("r")
    caller.restore("r")
    caller.restore("r")
    assert caller.ask(1) is None
    assert caller.wants() == [("r", 1)]
    assert caller.granted("r", 1, scarce=False) == [1]


def test_nothing_waits_after_clearing():
    caller = borrower("r")
    caller.ask(1)
    caller.ask(2, {"r"})
    caller.wants()
    assert caller.clear() == [1, 2]
    assert (caller.waiting, caller.wants()) == (0, [("r", 0)])


def test_requests_wait_on_when_a_replica_is_lost():
    caller = borrower("r")
    caller.ask(1)
    caller.wants()
    caller.lost("r")
    assert (caller.waiting, caller.wants()) == (1, [])
    caller.add("r2", near=False, slots=1)
    assert caller.wants() == [("r2", 1)]
    assert caller.granted("r2", 1, scarce=False) == [1]
    assert caller.granted("r", 1, scarce=False) == []
    assert caller.ended("r", keep=True) is None


def test_a_restricted_request_is_known_to_a_replica_that_comes_later():
    caller = borrower("r")
    caller.ask(1, {"later"})
    assert caller.wants() == []
    caller.add("later", near=True, slots=1)
    assert caller.wants() == [("later", 1)]
