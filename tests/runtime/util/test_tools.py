"""The small tools of `util`: completion order, serializers, what cannot be pickled, log_once, named actors."""

from __future__ import annotations

import importlib
import io
import pathlib
import threading
import time
from typing import Any

import pytest

from tests.under_test import NAME, ray

util: Any = importlib.import_module(f"{NAME}.util")
pytestmark = pytest.mark.usefixtures("session")


@ray.remote(num_cpus=0.5)
def identity(value: int) -> int:
    return value


@ray.remote(num_cpus=0.5)
def until_there(path: pathlib.Path) -> str:
    while not path.exists():
        time.sleep(0.01)
    return path.name


def test_as_completed(tmp_path: pathlib.Path) -> None:
    refs = [until_there.remote(tmp_path / name) for name in "abc"]
    results = util.as_completed(refs, chunk_size=1)
    for name in "cab":
        (tmp_path / name).touch()
        assert next(results) == name
    assert list(results) == []
    assert sorted(util.as_completed(refs)) == ["a", "b", "c"]
    assert set(util.as_completed(refs, yield_obj_refs=True)) == set(refs)
    assert list(util.as_completed([])) == []
    with pytest.raises(ValueError, match="chunk_size"):
        list(util.as_completed(refs, chunk_size=0))
    with pytest.raises(ValueError, match="num_returns"):
        list(util.as_completed(refs, num_returns=1))


def test_map_unordered(tmp_path: pathlib.Path) -> None:
    paths = [tmp_path / name for name in "abc"]
    results = util.map_unordered(until_there, paths, backpressure_size=2, chunk_size=1)
    for name in "bca":
        (tmp_path / name).touch()
        assert next(results) == name
    assert list(results) == []
    assert sorted(util.map_unordered(identity, [0] * 30, backpressure_size=None)) == [0] * 30
    with pytest.raises(ValueError, match="backpressure_size"):
        list(util.map_unordered(identity, [1], backpressure_size=0))


class Locked:
    """Cannot be pickled by itself."""

    def __init__(self, value: int) -> None:
        self.value = value
        self.lock = threading.Lock()


def test_registered_serializers() -> None:
    @ray.remote
    def value_of(locked: Any) -> Any:
        return locked.value

    with pytest.raises(TypeError):
        ray.put(Locked(1))
    util.register_serializer(Locked, serializer=lambda one: one.value, deserializer=Locked)
    try:
        assert ray.get(ray.put(Locked(2))).value == 2
        assert ray.get(value_of.remote(Locked(3))) == 3
        assert ray.get(ray.put([Locked(4)]))[0].value == 4
    finally:
        util.deregister_serializer(Locked)
    util.deregister_serializer(Locked)
    with pytest.raises(TypeError):
        ray.put(Locked(1))


def test_what_cannot_be_pickled_is_found() -> None:
    lock = threading.Lock()

    def uses() -> Any:
        return lock

    out = io.StringIO()
    serializable, failures = util.inspect_serializability(uses, name="uses", print_file=out)
    assert not serializable
    (failure,) = failures
    assert failure.obj is lock
    assert failure.parent is uses
    assert "Checking Serializability" in out.getvalue()
    assert "lock" in out.getvalue()
    serializable, failures = util.inspect_serializability(Locked(1), print_file=out)
    assert not serializable
    assert len(failures) == 1
    assert util.inspect_serializability([1, 2], print_file=out) == (True, set())


def test_log_once() -> None:
    assert util.log_once("a message of this test")
    assert not util.log_once("a message of this test")
    assert util.log_once("another message of this test")


def test_named_actors_are_listed() -> None:
    @ray.remote(num_cpus=0)
    class Actor:
        pass

    one = Actor.options(name="one").remote()
    two = Actor.options(name="two", namespace="other").remote()
    ray.get([one.__ray_ready__.remote(), two.__ray_ready__.remote()])
    assert util.list_named_actors() == ["one"]
    rows = util.list_named_actors(all_namespaces=True)
    assert {"name": "two", "namespace": "other"} in rows
    assert {row["name"] for row in rows} == {"one", "two"}


def test_this_nodes_address() -> None:
    assert util.get_node_ip_address().count(".") == 3
    assert isinstance(util.get_node_instance_id(), str)


def test_names_that_programs_import() -> None:
    for name in ("ActorPool", "placement_group", "remove_placement_group", "get_current_placement_group"):
        assert callable(getattr(util, name))
    assert importlib.import_module(f"{NAME}.util.annotations").PublicAPI(stability="beta")(Locked) is Locked
