"""What a node keeps of environments that nobody uses."""

from __future__ import annotations

from runtime._core.uri_cache import UriCache


def test_what_is_used_stays_and_the_longest_unused_goes_first() -> None:
    cache = UriCache(10)
    for now, name in enumerate("abc"):
        cache.add(name, 5, now)
    cache.use("a", 3)
    assert cache.evict() == ["b"]
    assert "a" in cache
    assert "b" not in cache
    assert "c" in cache
    assert cache.size_bytes == 10


def test_what_is_used_is_kept_though_it_is_too_large() -> None:
    cache = UriCache(10)
    cache.add("big", 300, 0)
    cache.use("big", 0)
    cache.use("big", 1)
    cache.release("big", 2)
    assert cache.evict() == []
    cache.release("big", 3)
    assert cache.evict() == ["big"]
    assert cache.size_bytes == 0


def test_using_makes_young() -> None:
    cache = UriCache(4)
    for now, name in enumerate("abc"):
        cache.add(name, 2, now)
    cache.use("a", 10)
    cache.release("a", 11)
    assert cache.evict() == ["b"]
