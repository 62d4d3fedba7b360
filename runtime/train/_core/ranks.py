"""Which worker has which rank. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Place(msgspec.Struct, frozen=True):
    """A worker's place among the workers of a run.

    Attributes:
        worker: its number in the order that was given to `placed`.
        rank: among all workers.
        world_size: the number of workers.
        local_rank: among the workers of its node.
        local_world_size: the number of workers of its node.
        node_rank: of its node, among the nodes with workers.
    """

    worker: int
    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int


def placed(nodes: Sequence[str]) -> list[Place]:
    """The places of workers in the order of their ranks. Workers of a node have ranks one after another; apart from
    that the order is kept, so that ranks stay the same while workers stay on their nodes.

    Args:
        nodes: the n-th worker's node. After a restart the workers come in the order of their ranks before it.
    """
    by_node: dict[str, list[int]] = {}
    for worker, node in enumerate(nodes):
        by_node.setdefault(node, []).append(worker)
    places: list[Place] = []
    for node_rank, workers in enumerate(by_node.values()):
        for local_rank, worker in enumerate(workers):
            places.append(Place(worker, len(places), len(nodes), local_rank, len(workers), node_rank))
    return places
