from __future__ import annotations

import pytest

from runtime.serve._core.published import Route, Routes
from runtime.serve._ingress.routes import RouteTable


def table(*prefixes: str, apps: dict[str, str] | None = None) -> RouteTable:
    made = RouteTable()
    made.update(Routes(1, [Route(prefix, f"app of {prefix}", "d") for prefix in prefixes], apps or {}))
    return made


@pytest.mark.parametrize(
    ("path", "prefix"),
    [
        ("/a", "/a"),
        ("/a/", "/a"),
        ("/a/b", "/a/b"),
        ("/a/b/c", "/a/b"),
        ("/a/bc", "/a"),
        ("/ab", "/"),
        ("/", "/"),
        ("/slash/", "/slash/"),
        ("/slash/x", "/slash/"),
        ("/slash", "/"),
        ("/A", "/"),
    ],
)
def test_the_longest_prefix_wins(path: str, prefix: str) -> None:
    found = table("/", "/a", "/a/b", "/slash/").match(path)
    assert found is not None
    assert found.prefix == prefix


def test_no_route() -> None:
    assert table("/a").match("/b") is None
    assert table("/a").match("") is None
    assert table().match("/") is None
    assert table("/").match("*") is None


def test_older_routes_are_ignored() -> None:
    made = table("/a")
    assert not made.update(Routes(0, []))
    assert made.match("/a") is not None
    assert made.update(Routes(2, []))
    assert made.match("/a") is None
    assert made.was_filled


def test_applications_by_name() -> None:
    one = table("/a")
    assert one.application("") == one.application("any") == ("app of /a", "d")
    two = table("/a", apps={"other": "e"})
    assert two.application("other") == ("other", "e")
    assert two.application("app of /a") == ("app of /a", "d")
    assert two.application("") is None
    assert sorted(two.applications) == ["app of /a", "other"]
    assert table().application("") is None
    assert not table().was_filled
    assert table(apps={"other": "e"}).was_filled


def test_shown() -> None:
    assert table("/b", "/", "/a/b").shown() == {"/": "app of /", "/b": "app of /b", "/a/b": "app of /a/b"}
