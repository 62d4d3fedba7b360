from __future__ import annotations

from runtime._core.ledger import Ledger
from runtime._node.cluster import Cluster
from runtime._wire.messages.base import NodeInfo
from runtime._wire.messages.control import NodeLoad

HERE, THERE = b"h" * 28, b"t" * 28


def info(node_id: bytes, state: str = "ALIVE") -> NodeInfo:
    return NodeInfo(
        node_id, state, "10.0.0.1:1", "", "10.0.0.1", "n", False, "", {"CPU": 4}, {"CPU": 4}, {"a": "b"}
    )


def cluster(dead: list[NodeInfo]) -> Cluster:
    return Cluster(HERE, Ledger({"CPU": 2}), {}, dead.append)


def test_a_load_replaces_what_is_there_and_free_and_nothing_else() -> None:
    known = cluster([])
    known.update([info(THERE)])
    known.update_loads([NodeLoad(THERE, {"CPU": 6}, {"CPU": 1})])
    view = known.table.others[THERE]
    assert (view.total, view.available, view.labels) == ({"CPU": 6}, {"CPU": 1}, {"a": "b"})
    assert view.schedulable
    assert known.address_of(THERE) == "10.0.0.1:1"


def test_loads_of_this_node_and_of_unknown_and_dead_ones_say_nothing() -> None:
    dead: list[NodeInfo] = []
    known = cluster(dead)
    known.update([info(THERE)])
    known.update([info(THERE, "DEAD")])
    known.update_loads([NodeLoad(node_id, {"CPU": 9}, {"CPU": 9}) for node_id in (HERE, THERE, b"x" * 28)])
    assert not known.table.others
    assert known.table.local.available == {"CPU": 2}
    assert [node.node_id for node in dead] == [THERE]


def test_nodes_that_died_before_this_one_joined_are_dead() -> None:
    dead: list[NodeInfo] = []
    known = cluster(dead)
    known.bury([THERE])
    assert known.is_dead(THERE)
    assert not dead, "nothing here was theirs"


def test_the_death_of_a_known_node_is_told_though_its_news_was_missed() -> None:
    dead: list[NodeInfo] = []
    known = cluster(dead)
    known.update([info(THERE)])
    known.bury([THERE])
    known.bury([THERE])
    known.update([], whole=True)
    assert [node.node_id for node in dead] == [THERE]
    assert known.is_dead(THERE)
    assert known.address_of(THERE) is None
