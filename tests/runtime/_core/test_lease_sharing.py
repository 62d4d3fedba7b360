"""Who gives leases back to whom, and when."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime._core.lease_sharing import RETRY_S, SLICE_S, Want, recalls

NOW = 100.0
CPU = {"CPU": 10_000}


@dataclass(eq=False)
class Lease:
    job_id: bytes
    holder: str
    resources: dict[str, int]
    since_s: float = NOW - 10
    recalled_s: float | None = None


def leases(*holders: str, since_s: float = NOW - 10) -> list[Lease]:
    """Each of one CPU; the first letter is the job."""
    return [Lease(holder[:1].encode(), holder, CPU, since_s) for holder in holders]


def wants(*holders: str, resources: dict[str, int] = CPU) -> list[Want]:
    return [(holder[:1].encode(), holder, resources) for holder in holders]


def recalled(want: list[Want], held: list[Lease], free: int = 0) -> list[str]:
    return sorted(lease.holder for lease in recalls(want, held, {"CPU": free}, NOW)[0])


@pytest.mark.parametrize(
    ("held", "wanting", "back"),
    [
        ("a a", "b", "a"),  # a driver that comes later
        ("a", "b", "a"),  # taking turns
        ("a b", "b", ""),  # fair as it is
        ("a a b", "b", "a"),  # three workers for two: the third one goes to and fro
        ("a a a b", "b", "a"),
        ("a a a a", "b b b b", "a a"),
        ("a a b b", "c c", "a b"),
        ("ax ax", "ay", "ax"),  # a class of the same job
        ("ax ay", "ay", ""),
        ("ax ay", "b", "ax"),  # jobs count, not their classes
        ("b", "ax ay", "b"),
        ("", "b", ""),
    ],
)
def test_shares(held: str, wanting: str, back: str) -> None:
    assert recalled(wants(*wanting.split()), leases(*held.split())) == back.split()


def test_nothing_is_recalled_for_what_fits() -> None:
    assert recalled(wants("b"), leases("a", "a"), free=10_000) == []


def test_nobody_loses_what_it_has_just_got() -> None:
    found, due = recalls(wants("b"), leases("a", "a", since_s=NOW - SLICE_S / 2), {}, NOW)
    assert found == []
    assert due == pytest.approx(NOW + SLICE_S / 2)


def test_the_oldest_lease_goes() -> None:
    young, old = leases("a", since_s=NOW - 1) + leases("a", since_s=NOW - 2)
    assert recalls(wants("b"), [young, old], {}, NOW)[0] == [old]


def test_what_is_on_its_way_back_is_waited_for_and_then_no_longer() -> None:
    held = leases("a", "a", "a")
    held[0].recalled_s = NOW
    found, due = recalls(wants("b"), held, {}, NOW + RETRY_S / 2)
    assert found == []
    assert due == pytest.approx(NOW + RETRY_S)
    found, _ = recalls(wants("b"), held, {}, NOW + RETRY_S)
    assert len(found) == 1
    assert found[0] is not held[0]


def test_several_leases_for_one_large_demand() -> None:
    assert recalled(wants("b", resources={"CPU": 20_000}), leases("a", "a", "a")) == ["a", "a"]


def test_none_for_one_that_would_not_fit_even_then() -> None:
    assert recalled(wants("b", resources={"CPU": 40_000}), leases("a", "a", "a")) == []


def test_what_is_of_no_use_stays() -> None:
    assert recalled(wants("b", resources={"GPU": 10_000}), leases("a", "a")) == []


@given(
    st.lists(st.sampled_from(["ax", "ay", "bx", "c"]), max_size=12),
    st.lists(st.sampled_from(["ax", "ay", "bx", "c", "d"]), max_size=8),
)
def test_each_is_recalled_once_and_for_somebody_else(held: list[str], wanting: list[str]) -> None:
    current = leases(*held)
    found, _ = recalls(wants(*wanting), current, {}, NOW)
    assert len(set(map(id, found))) == len(found) <= len(wanting)
    for lease in found:
        assert any(holder != lease.holder for holder in wanting)
