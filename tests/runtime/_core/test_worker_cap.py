"""How many tasks of a class may have a worker, and how long the next one is held back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from runtime._core.resources import UNIT
from runtime._core.worker_cap import FIRST_DELAY_S, LONGEST_DELAY_S, SchedulingClass, WorkerCap

F = SchedulingClass(b"job", 1, b"f")
CHILD = F._replace(depth=2)
ONE = {"CPU": UNIT}
GROUP = "ab" * 18


def cap(cpus: float) -> WorkerCap:
    return WorkerCap({"CPU": round(cpus * UNIT), f"CPU_group_{GROUP}": 2 * UNIT})


def started(of: WorkerCap, request: dict[str, int]) -> int:
    """How many begin at once, up to 20."""
    count = 0
    while count < 20 and not of.left_s(F, request, 0):
        of.take(F)
        count += 1
    return count


def test_as_many_as_there_are_cpus_for() -> None:
    assert started(cap(4), ONE) == 4
    assert started(cap(4), {"CPU": 2 * UNIT}) == 2
    assert started(cap(4), {"CPU": UNIT // 2}) == 8
    assert started(cap(4), {"CPU": UNIT, "GPU": UNIT}) == 4
    assert started(cap(4), {f"CPU_group_{GROUP}": UNIT}) == 2


def test_at_least_one() -> None:
    assert started(cap(1), {"CPU": 2 * UNIT}) == 1


def test_what_lends_nothing_is_not_limited() -> None:
    assert started(cap(1), {}) == 20
    assert started(cap(1), {"widget": UNIT}) == 20


def test_classes_are_apart() -> None:
    one = cap(1)
    one.take(F)
    assert one.left_s(F, ONE, 0)
    for other in (CHILD, F._replace(origin=b"actor"), F._replace(key=b"g")):
        assert not one.left_s(other, ONE, 0)


def test_the_delay_grows_up_to_a_limit() -> None:
    one = cap(1)
    one.take(F)
    delays = []
    for _ in range(60):
        delays.append(one.left_s(F, ONE, 0))
        one.take(F)
    assert delays[:5] == [FIRST_DELAY_S * factor for factor in (1, 2, 4, 8, 10)]
    assert set(delays[4:]) == {LONGEST_DELAY_S}


def test_it_runs_only_while_there_is_room() -> None:
    one = cap(1)
    one.take(F)
    one.pause(F, 0)
    one.hold(F, 10)
    one.hold(F, 10.25)
    assert one.left_s(F, ONE, 10.5) == 0.5
    one.pause(F, 10.5)
    assert one.left_s(F, ONE, 100) == 0.5
    one.hold(F, 100)
    assert one.left_s(F, ONE, 100.5) == 0


def test_it_begins_anew_with_each() -> None:
    one = cap(1)
    one.take(F)
    one.hold(F, 0)
    one.take(F)
    assert one.left_s(F, ONE, 100) == 2 * FIRST_DELAY_S


def test_a_lease_that_ends_makes_room() -> None:
    one = cap(1)
    one.take(F)
    one.release(F)
    assert one.left_s(F, ONE, 0) == 0


@given(
    st.lists(st.tuples(st.sampled_from(["take", "release", "hold", "pause"]), st.booleans(), st.floats(0, 9)))
)
def test_nothing_is_left_when_all_leases_are_over(steps: list[tuple[str, bool, float]]) -> None:
    one, now, held = cap(2), 0.0, {F: 0, CHILD: 0}
    for action, is_child, seconds in steps:
        which = CHILD if is_child else F
        now += seconds
        if action == "take":
            one.take(which)
            held[which] += 1
        elif action == "release" and held[which]:
            one.release(which)
            held[which] -= 1
        elif action == "hold" and one.left_s(which, ONE, now):
            one.hold(which, now)
        elif action == "pause":
            one.pause(which, now)
        assert (one.left_s(which, ONE, now) == 0) or held[which] >= 2
    for which, count in held.items():
        for _ in range(count):
            one.release(which)
    assert not one.holds_any
    assert not one._counts
