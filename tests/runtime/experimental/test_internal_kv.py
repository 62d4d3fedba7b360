"""The cluster's key-value store."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from tests.under_test import NAME, ray

kv: Any = importlib.import_module(f"{NAME}.experimental.internal_kv")
pytestmark = pytest.mark.usefixtures("session")


def test_put_get_delete() -> None:
    assert kv._internal_kv_initialized()
    assert kv._internal_kv_get("k1") is None
    assert kv._internal_kv_put("k1", "v1") is False
    assert kv._internal_kv_put("k1", b"v2") is True
    assert kv._internal_kv_get(b"k1") == b"v2"
    assert kv._internal_kv_put("k1", "v3", overwrite=False) is True
    assert kv._internal_kv_get("k1") == b"v2"
    assert kv._internal_kv_exists("k1")
    assert kv._internal_kv_del("k1") == 1
    assert kv._internal_kv_del("k1") == 0
    assert not kv._internal_kv_exists("k1")


def test_prefixes_and_namespaces() -> None:
    for key in ("p1", "p2", "q"):
        kv._internal_kv_put(key, key, namespace="n")
    assert set(kv._internal_kv_list("p", namespace="n")) == {b"p1", b"p2"}
    assert kv._internal_kv_list("p") == []
    assert kv._internal_kv_get("q") is None
    assert kv._internal_kv_get("q", namespace="n") == b"q"
    assert kv._internal_kv_del("p", del_by_prefix=True, namespace="n") == 2
    assert kv._internal_kv_list("", namespace="n") == [b"q"]


def test_tasks_see_the_same() -> None:
    @ray.remote
    def put() -> None:
        kv._internal_kv_put("from a task", "yes")

    ray.get(put.remote())
    assert kv._internal_kv_get("from a task") == b"yes"


def test_resources_do_not_change() -> None:
    with pytest.raises(DeprecationWarning):
        importlib.import_module(f"{NAME}.experimental").set_resource("a", 1)
