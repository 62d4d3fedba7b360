"""Ranks are contiguous on a node, and stay with their workers."""

from runtime.train._core.ranks import placed


def test_workers_of_a_node_have_ranks_one_after_another() -> None:
    places = placed(["a", "b", "a", "b", "b"])
    assert [place.worker for place in places] == [0, 2, 1, 3, 4]
    assert [place.rank for place in places] == [0, 1, 2, 3, 4]
    assert [(place.local_rank, place.local_world_size, place.node_rank) for place in places] == [
        (0, 2, 0),
        (1, 2, 0),
        (0, 3, 1),
        (1, 3, 1),
        (2, 3, 1),
    ]


def test_the_order_of_before_is_kept() -> None:
    before = placed(["a", "b", "a"])
    nodes = {0: "a", 1: "b", 2: "a"}
    again = placed([nodes[place.worker] for place in before])
    assert [place.worker for place in again] == [0, 1, 2]
