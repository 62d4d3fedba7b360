from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.demand import Shape
from autoscaler.packing import Floor, NodeClass, Origin, Pool, copies_in
from runtime._core.resources import fits
from tests.autoscaler.build import shape

U = 10_000


def nodes(count: int, origin: Origin = Origin.EXISTING, name: str = "n", **amounts: int) -> NodeClass:
    units = {key: amount * U for key, amount in amounts.items()}
    return NodeClass(origin, "kind", dict(units), units, {}, [f"{name}{i}" for i in range(count)])


def take(pool: Pool, usage: dict[str, list[Shape]]) -> None:
    pool.take(usage, {name: entry for entry in pool for name in entry.members}, None)


def left(pool: Pool) -> dict[str, dict[str, int]]:
    return {name: dict(entry.available) for entry in pool for name in entry.members}


def test_equal_nodes_are_one_class() -> None:
    pool = Pool.of([nodes(1, name="a", CPU=2), nodes(1, name="b", CPU=2), nodes(1, name="c", CPU=4)])
    assert sorted(len(entry.members) for entry in pool) == [1, 2]


def test_all_fit_in_one_step() -> None:
    pool = Pool.of([nodes(1000, CPU=4)])
    assert pool.place(shape(CPU=1), 4000) == 0
    assert len(pool.classes) == 1
    assert left(pool)["n7"]["CPU"] == 0


def test_the_rest_is_returned() -> None:
    assert Pool.of([nodes(3, CPU=4)]).place(shape(CPU=3), 10) == 7


def test_some_nodes_are_filled_one_partly_the_others_untouched() -> None:
    pool = Pool.of([nodes(10, CPU=4)])
    assert pool.place(shape(CPU=1), 10) == 0
    amounts = sorted(available["CPU"] // U for available in left(pool).values())
    assert amounts == [0, 0, 2, 4, 4, 4, 4, 4, 4, 4]
    assert len(pool.used()) == 3


def test_existing_nodes_before_coming_ones_before_new_ones() -> None:
    pool = Pool.of(
        [
            nodes(1, Origin.NEW, "new", CPU=1),
            nodes(1, Origin.COMING, "coming", CPU=1),
            nodes(1, Origin.EXISTING, "old", CPU=1),
        ]
    )
    pool.place(shape(CPU=1), 1)
    assert pool.used() == {"old0"}
    pool.place(shape(CPU=1), 1)
    assert pool.used() == {"old0", "coming0"}


def test_gpu_nodes_are_spared() -> None:
    pool = Pool.of([nodes(1, name="gpu", CPU=4, GPU=1), nodes(1, name="cpu", CPU=4)])
    pool.place(shape(CPU=1), 4)
    assert pool.used() == {"cpu0"}
    assert pool.place(shape(CPU=1), 5) == 1
    assert pool.used() == {"cpu0", "gpu0"}


def test_a_shape_without_resources_needs_one_node() -> None:
    pool = Pool.of([nodes(5, CPU=1)])
    assert pool.place(shape(), 1_000_000) == 0
    assert len(pool.used()) == 1
    assert Pool().place(shape(), 3) == 3


def test_selectors_are_obeyed() -> None:
    fast = NodeClass(Origin.EXISTING, "kind", {"CPU": U}, {"CPU": U}, {"tier": "fast"}, ["fast"])
    pool = Pool.of([nodes(1, CPU=1), fast])
    assert pool.place(shape({"tier": "fast"}, CPU=1), 2) == 1
    assert pool.used() == {"fast"}
    assert pool.place(shape({"tier": "none"}), 1) == 1


def test_oversubscribed_nodes_hold_nothing() -> None:
    entry = NodeClass(Origin.EXISTING, "kind", {"CPU": -U}, {"CPU": U}, {}, ["a"])
    assert Pool.of([entry]).place(shape(CPU=1), 1) == 1


def test_full_nodes_are_set_aside_and_still_known() -> None:
    pool = Pool.of([nodes(2, CPU=1), nodes(1, name="m", CPU=8)])
    pool.place(shape(CPU=1), 2)
    pool.set_full_aside(Floor.of([shape(CPU=1), shape(CPU=2, GPU=1)]))
    assert [entry.members for entry in pool.full] == [["n0", "n1"]]
    assert pool.used() == {"n0", "n1"}
    assert len(list(pool)) == 2


def test_the_floor_only_knows_what_all_shapes_need() -> None:
    floor = Floor.of([shape(CPU=2, GPU=1), shape(CPU=1)])
    assert dict(floor.always) == {"CPU": U}
    assert floor.is_full({"CPU": U - 1})
    assert not floor.is_full({"CPU": U})
    assert not Floor.of([]).is_full({})


def test_an_overlay_leaves_the_original_alone() -> None:
    pool = Pool.of([nodes(3, CPU=4)])
    overlay = pool.copy()
    overlay.place(shape(CPU=4), 3)
    assert not pool.used()
    assert pool.place(shape(CPU=4), 3) == 0


def test_single_members_leave_their_class() -> None:
    pool = Pool.of([nodes(4, CPU=4)])
    take(pool, {"n1": [shape(CPU=1)], "n2": [shape(CPU=1)], "n3": [shape(CPU=1), shape(CPU=2)]})
    assert {name: a["CPU"] // U for name, a in left(pool).items()} == {"n0": 4, "n1": 3, "n2": 3, "n3": 1}
    assert pool.used() == {"n1", "n2", "n3"}
    assert len(pool.classes) == 3


def test_compacting_merges_what_became_alike() -> None:
    pool = Pool.of([nodes(4, CPU=4)])
    for name in ("n1", "n2"):
        take(pool, {name: [shape(CPU=1)]})
    assert len(pool.classes) == 3
    pool.compact()
    assert len(pool.classes) == 2
    assert pool.used() == {"n1", "n2"}


def test_work_of_the_first_selector_goes_there_and_else_to_a_fallback() -> None:
    fast = NodeClass(Origin.EXISTING, "kind", {"CPU": U}, {"CPU": U}, {"tier": "fast"}, ["fast"])
    slow = NodeClass(Origin.EXISTING, "kind", {"CPU": U}, {"CPU": U}, {"tier": "slow"}, ["slow"])
    picky = Shape.of({"CPU": U}, {"tier": "fast"}, [{"tier": "slow"}])
    pool = Pool.of([slow, fast])
    assert pool.place(picky, 1) == 0
    assert pool.used() == {"fast"}
    assert pool.place(picky, 2) == 1
    assert pool.used() == {"fast", "slow"}


def test_full_nodes_are_filled_up_before_empty_ones() -> None:
    half = NodeClass(Origin.EXISTING, "kind", {"CPU": 2 * U}, {"CPU": 4 * U}, {}, ["half"])
    pool = Pool.of([nodes(3, CPU=4), half])
    pool.place(shape(CPU=1), 2)
    assert pool.used() == {"half"}


def test_new_nodes_know_whose_work_they_hold() -> None:
    pool = Pool.of([nodes(1, CPU=2)])
    pool.add(nodes(3, Origin.NEW, "new", CPU=2))
    pool.place(shape(CPU=1), 7, "somebody")
    held = {name: entry.holds for entry in pool for name in entry.members}
    two, one = (("somebody", 2),), (("somebody", 1),)
    assert held == {"n0": (), "new0": two, "new1": two, "new2": one}


def test_new_nodes_without_gpus_stand_before_nodes_with_gpus() -> None:
    pool = Pool.of([nodes(1, name="gpu", CPU=4, GPU=1)])
    pool.add(nodes(1, Origin.NEW, "new", CPU=4))
    pool.place(shape(CPU=4), 1)
    assert pool.used() == {"new0"}


def test_the_classes_that_can_hold_something() -> None:
    pool = Pool.of(
        [nodes(1, name="a", CPU=1), nodes(1, Origin.COMING, "b", CPU=4), nodes(1, name="c", GPU=1)]
    )
    assert [entry.members for entry in pool.able(shape(CPU=2))] == [["b0"]]
    assert [entry.members for entry in pool.able(shape(CPU=1))] == [["a0"], ["b0"]]
    assert [entry.members for entry in pool.able(shape(CPU=1), Origin.EXISTING)] == [["a0"]]
    assert len(list(pool.able(shape()))) == 3


amounts = st.fixed_dictionaries(
    {}, optional={"CPU": st.integers(1, 8), "GPU": st.integers(1, 3), "disk": st.integers(1, 5)}
)
classes = st.lists(st.tuples(st.integers(1, 6), amounts), max_size=5)
wishes = st.lists(st.tuples(amounts.filter(bool), st.integers(1, 20)), max_size=6)


def pool_of(spec: list[tuple[int, dict[str, int]]]) -> Pool:
    return Pool.of([nodes(count, name=f"c{i}-", **a) for i, (count, a) in enumerate(spec)])


@settings(max_examples=150, deadline=None)
@given(classes, wishes)
def test_nothing_is_lost_and_nothing_is_overfull(
    spec: list[tuple[int, dict[str, int]]], wanted: list[tuple[dict[str, int], int]]
) -> None:
    pool = pool_of(spec)
    before = left(pool)
    placed: dict[str, int] = {}
    for wish, count in wanted:
        one = Shape.of({k: v * U for k, v in wish.items()})
        rest = pool.place(one, count)
        assert 0 <= rest <= count
        for name, amount in one.resources:
            placed[name] = placed.get(name, 0) + amount * (count - rest)
        # Whatever was refused fits nowhere now.
        if rest:
            assert not any(fits(dict(one.resources), available) for available in left(pool).values())
    after = left(pool)
    assert after.keys() == before.keys()
    assert all(amount >= 0 for available in after.values() for amount in available.values())
    for name in ("CPU", "GPU", "disk"):
        used = sum(before[n].get(name, 0) - after[n].get(name, 0) for n in before)
        assert used == placed.get(name, 0)


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 30), st.integers(1, 16), st.integers(1, 5), st.integers(0, 500))
def test_counting_equals_looping(members: int, size: int, need: int, count: int) -> None:
    pool = Pool.of([nodes(members, CPU=size)])
    assert pool.place(shape(CPU=need), count) == max(0, count - members * (size // need))


@settings(max_examples=100, deadline=None)
@given(amounts, amounts.filter(bool))
def test_copies_are_as_many_as_fit(available: dict[str, int], need: dict[str, int]) -> None:
    one = Shape.of({k: v * U for k, v in need.items()})
    units = {k: v * U for k, v in available.items()}
    copies = copies_in(one, units)
    assert fits({k: v * copies for k, v in one.resources}, units)
    assert not fits({k: v * (copies + 1) for k, v in one.resources}, units)
