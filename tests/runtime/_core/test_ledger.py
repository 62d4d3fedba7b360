"""A node's accounts: amounts, GPU ids, lending, bundles."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from runtime._core.ledger import Allocation, Ledger
from runtime._core.placement import rewrite_for_group
from runtime._core.resources import UNIT

PG = bytes(range(18))
HEX = PG.hex()


def ledger(**amounts: float) -> Ledger:
    return Ledger({name: round(amount * UNIT) for name, amount in amounts.items()})


def units(**amounts: float) -> dict[str, int]:
    return {name: round(amount * UNIT) for name, amount in amounts.items()}


def taken(accounts: Ledger, **amounts: float) -> Allocation:
    allocation = accounts.allocate(units(**amounts))
    assert allocation is not None
    return allocation


def test_what_is_taken_is_gone_until_released() -> None:
    accounts = ledger(CPU=2)
    allocation = taken(accounts, CPU=1.5)
    assert accounts.available == units(CPU=0.5)
    assert accounts.allocate(units(CPU=1)) is None
    accounts.release(allocation)
    assert accounts.available == units(CPU=2)


def test_releasing_twice_does_nothing() -> None:
    accounts = ledger(CPU=2)
    allocation = taken(accounts, CPU=1)
    accounts.release(allocation)
    accounts.release(allocation)
    assert accounts.available == units(CPU=2)


def test_whole_gpus_have_ids_of_their_own() -> None:
    accounts = ledger(GPU=3)
    assert taken(accounts, GPU=2).gpu_ids == ["0", "1"]
    assert taken(accounts, GPU=1).gpu_ids == ["2"]


def test_fractions_share_a_gpu() -> None:
    accounts = ledger(GPU=2)
    assert [taken(accounts, GPU=0.5).gpu_ids for _ in range(3)] == [["0"], ["0"], ["1"]]


def test_two_halves_of_different_gpus_are_no_whole_one() -> None:
    accounts = ledger(GPU=2)
    first = taken(accounts, GPU=0.5)
    taken(accounts, GPU=0.6)
    assert first.gpu_ids == ["0"]
    assert accounts.available == units(GPU=0.9)
    accounts.release(first)
    assert taken(accounts, GPU=1).gpu_ids == ["0"]


def test_other_accelerators_have_ids_too() -> None:
    accounts = ledger(GPU=1, TPU=4, custom=2)
    allocation = taken(accounts, GPU=1, TPU=2, custom=1)
    assert allocation.gpu_ids == ["0"]
    assert allocation.other_ids == {"TPU": ["0", "1"]}
    assert taken(accounts, TPU=1).other_ids == {"TPU": ["2"]}
    accounts.release(allocation)
    assert taken(accounts, TPU=1).other_ids == {"TPU": ["0"]}


def test_shrinking_keeps_only_what_is_named() -> None:
    accounts = ledger(CPU=2, GPU=1)
    allocation = taken(accounts, CPU=1, GPU=1)
    accounts.shrink(allocation, units(GPU=1))
    assert accounts.available == units(CPU=2)
    assert allocation.gpu_ids == ["0"]
    accounts.release(allocation)
    assert accounts.available == units(CPU=2, GPU=1)


def test_only_cpus_are_lent() -> None:
    accounts = ledger(CPU=1, special=1)
    allocation = taken(accounts, CPU=1, special=1)
    assert accounts.lend(allocation)
    assert accounts.available == units(CPU=1)


def test_what_an_actor_keeps_is_not_lent() -> None:
    accounts = ledger(CPU=4)
    allocation = taken(accounts, CPU=3)
    allocation.kept = units(CPU=2)
    assert accounts.lend(allocation)
    assert accounts.available == units(CPU=2)
    accounts.shrink(allocation, units(CPU=2))
    assert accounts.available == units(CPU=2)
    assert not accounts.lend(allocation)
    assert accounts.available == units(CPU=2)
    assert accounts.lend(allocation, whole=True)
    assert accounts.available == units(CPU=4)
    accounts.unlend(allocation)
    assert accounts.available == units(CPU=2)


def test_what_an_actor_keeps_in_a_bundle_is_not_lent() -> None:
    accounts = ledger(CPU=4)
    accounts.reserve_bundles(PG, [(0, units(CPU=3))])
    for index in (0, -1):
        request = rewrite_for_group(units(CPU=1), HEX, index)
        allocation = accounts.allocate(request)
        assert allocation is not None
        allocation.kept = request
        assert not accounts.lend(allocation)
    assert accounts.available[f"CPU_group_0_{HEX}"] == accounts.available[f"CPU_group_{HEX}"] == UNIT


def test_lent_cpus_come_back_into_the_negative() -> None:
    accounts = ledger(CPU=1)
    lender = taken(accounts, CPU=1)
    accounts.lend(lender)
    borrower = taken(accounts, CPU=1)
    accounts.unlend(lender)
    assert accounts.available == {"CPU": -UNIT}
    accounts.release(borrower)
    accounts.release(lender)
    assert accounts.available == units(CPU=1)


def test_a_lender_that_ends_gives_back_once() -> None:
    accounts = ledger(CPU=1)
    allocation = taken(accounts, CPU=1)
    accounts.lend(allocation)
    accounts.release(allocation)
    assert accounts.available == units(CPU=1)


def test_a_bundle_is_set_aside_then_offered() -> None:
    accounts = ledger(CPU=4)
    assert accounts.prepare_bundle(PG, 0, units(CPU=3))
    assert accounts.available == units(CPU=1)
    assert accounts.commit_bundle(PG, 0)
    assert accounts.available[f"CPU_group_0_{HEX}"] == 3 * UNIT
    assert accounts.total[f"bundle_group_{HEX}"] == 1000 * UNIT


def test_preparing_again_changes_nothing() -> None:
    accounts = ledger(CPU=4)
    assert accounts.prepare_bundle(PG, 0, units(CPU=3))
    assert accounts.prepare_bundle(PG, 0, units(CPU=3))
    assert accounts.available == units(CPU=1)


def test_a_bundle_that_does_not_fit_is_refused() -> None:
    assert not ledger(CPU=1).prepare_bundle(PG, 0, units(CPU=2))


def test_a_bundle_that_was_never_prepared_cannot_be_committed() -> None:
    assert not ledger(CPU=1).commit_bundle(PG, 0)


def test_bundles_are_reserved_all_or_none() -> None:
    accounts = ledger(CPU=4)
    assert accounts.prepare_bundle(PG, 0, units(CPU=1))
    assert not accounts.reserve_bundles(PG, [(0, units(CPU=1)), (1, units(CPU=2)), (2, units(CPU=2))])
    assert accounts.bundles() == [(PG, 0)]
    assert accounts.available == units(CPU=3)
    whole = [(0, units(CPU=1)), (1, units(CPU=2))]
    assert accounts.reserve_bundles(PG, whole)
    assert accounts.reserve_bundles(PG, whole)
    in_two_phases = ledger(CPU=4)
    for index, resources in whole:
        assert in_two_phases.prepare_bundle(PG, index, resources)
        assert in_two_phases.commit_bundle(PG, index)
    assert (accounts.total, accounts.available) == (in_two_phases.total, in_two_phases.available)


def test_a_request_for_any_bundle_is_taken_from_one() -> None:
    accounts = ledger(CPU=4)
    for number in (0, 1):
        accounts.prepare_bundle(PG, number, units(CPU=2))
        accounts.commit_bundle(PG, number)
    anywhere = rewrite_for_group(units(CPU=2), HEX, -1)
    first = accounts.allocate(anywhere)
    assert first is not None
    assert accounts.available[f"CPU_group_1_{HEX}"] == 2 * UNIT
    assert f"CPU_group_0_{HEX}" not in accounts.available
    assert accounts.allocate(rewrite_for_group(units(CPU=1), HEX, 0)) is None
    assert accounts.allocate(anywhere) is not None
    assert accounts.allocate(rewrite_for_group(units(CPU=1), HEX, -1)) is None


def test_a_request_that_no_single_bundle_covers_is_refused() -> None:
    accounts = ledger(CPU=4)
    for number in (0, 1):
        accounts.prepare_bundle(PG, number, units(CPU=2))
        accounts.commit_bundle(PG, number)
    assert accounts.allocate(rewrite_for_group(units(CPU=3), HEX, -1)) is None


def test_gpus_of_a_bundle_are_those_it_set_aside() -> None:
    accounts = ledger(GPU=2)
    taken(accounts, GPU=1)
    accounts.prepare_bundle(PG, 0, units(GPU=1))
    accounts.commit_bundle(PG, 0)
    allocation = accounts.allocate(rewrite_for_group(units(GPU=1), HEX, 0))
    assert allocation is not None
    assert allocation.gpu_ids == ["1"]


def test_a_returned_bundle_voids_what_is_inside() -> None:
    accounts = ledger(CPU=2)
    accounts.prepare_bundle(PG, 0, units(CPU=2))
    accounts.commit_bundle(PG, 0)
    inside = accounts.allocate(rewrite_for_group(units(CPU=1), HEX, 0))
    assert inside is not None
    accounts.lend(inside)
    assert accounts.return_bundle(PG, 0) == [inside]
    accounts.release(inside)
    assert accounts.available == units(CPU=2)
    assert accounts.total == units(CPU=2)


def test_a_whole_lent_in_a_bundle_is_there_for_tasks_outside_too() -> None:
    accounts = ledger(CPU=2)
    accounts.prepare_bundle(PG, 0, units(CPU=2))
    accounts.commit_bundle(PG, 0)
    inside = accounts.allocate(rewrite_for_group(units(CPU=2), HEX, 0))
    assert inside is not None
    before = dict(accounts.available)
    assert accounts.allocate(units(CPU=1)) is None
    assert accounts.lend(inside, whole=True)
    assert accounts.available["CPU"] == units(CPU=2)["CPU"]
    taken(accounts, CPU=2)
    accounts.unlend(inside)
    assert accounts.available["CPU"] == -units(CPU=2)["CPU"]
    assert {name: amount for name, amount in accounts.available.items() if name != "CPU"} == {
        name: amount for name, amount in before.items() if name != "CPU"
    }


def test_a_bundle_made_again_is_not_hurt_by_a_late_release() -> None:
    accounts = ledger(CPU=2)
    for _ in range(2):
        accounts.prepare_bundle(PG, 0, units(CPU=2))
        accounts.commit_bundle(PG, 0)
        inside = accounts.allocate(rewrite_for_group(units(CPU=2), HEX, 0))
        assert inside is not None
        accounts.return_bundle(PG, 0)
        accounts.prepare_bundle(PG, 0, units(CPU=2))
        accounts.commit_bundle(PG, 0)
        accounts.release(inside)
        assert accounts.available[f"CPU_group_0_{HEX}"] == 2 * UNIT
        accounts.return_bundle(PG, 0)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["allocate", "release", "lend", "unlend", "bundle", "return", "inside"]),
            st.integers(0, 7),
            st.sampled_from([0.5, 1.0, 2.0]),
        ),
        max_size=50,
    )
)
def test_everything_comes_back(steps: list[tuple[str, int, float]]) -> None:
    accounts = ledger(CPU=4, GPU=2)
    held: list[Allocation] = []
    for action, number, amount in steps:
        index = number % 2
        if action in ("allocate", "inside"):
            wanted = units(CPU=amount, GPU=amount)
            if action == "inside":
                wanted = rewrite_for_group(wanted, HEX, index if number > 3 else -1)
            found = accounts.allocate(wanted)
            if found is not None:
                held.append(found)
        elif action == "bundle":
            accounts.prepare_bundle(PG, index, units(CPU=amount, GPU=1))
            if number > 3:
                accounts.commit_bundle(PG, index)
        elif action == "return":
            accounts.return_bundle(PG, index)
        elif held:
            allocation = held[number % len(held)]
            getattr(accounts, action)(allocation)
    for allocation in held:
        accounts.release(allocation)
    for key in accounts.bundles():
        accounts.return_bundle(*key)
    assert accounts.available == accounts.total == units(CPU=4, GPU=2)
    assert taken(accounts, GPU=2).gpu_ids == ["0", "1"]
