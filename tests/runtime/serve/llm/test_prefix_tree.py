"""The radix tree against a list of texts."""

from __future__ import annotations

from itertools import takewhile
from random import Random

import pytest

from runtime.serve.llm._prefix_tree import PrefixTree


def common(one: str, other: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def test_the_longest_beginning_and_who_has_seen_it() -> None:
    tree: PrefixTree[str] = PrefixTree()
    tree.insert("hello world", "a")
    tree.insert("hello there", "b")
    assert tree.match("hello you", ["a", "b"]) == (6, ["a", "b"])
    assert tree.match("hello worms", ["a", "b"]) == (9, ["a"])
    assert tree.match("hello worms", ["b"]) == (6, ["b"])
    assert tree.match("bye", ["a", "b"]) == (0, [])
    assert (tree.size, tree.size_of("a"), tree.size_of("b")) == (22, 11, 11)


def test_a_tenant_is_removed_with_what_only_it_has_seen() -> None:
    tree: PrefixTree[str] = PrefixTree()
    tree.insert("abc", "a")
    tree.insert("abd", "b")
    tree.remove("a")
    assert tree.match("abc", ["a"]) == (0, [])
    assert tree.match("abc", ["b"]) == (2, ["b"])
    assert tree.size == 3


def test_the_texts_not_used_for_the_longest_time_are_forgotten_first() -> None:
    tree: PrefixTree[str] = PrefixTree()
    tree.insert("aaaa1", "x")
    tree.insert("bbbb", "x")
    tree.insert("aaaa2", "x")
    tree.evict(6)
    assert tree.match("bbbb", ["x"]) == (0, [])
    assert tree.match("aaaa2", ["x"]) == (5, ["x"])
    assert tree.size <= 6


@pytest.mark.parametrize("seed", range(10))
def test_it_finds_what_a_search_of_all_texts_finds(seed: int) -> None:
    random = Random(seed)
    tree: PrefixTree[int] = PrefixTree()
    seen: dict[int, list[str]] = {0: [], 1: [], 2: []}
    for _ in range(60):
        text = "".join(random.choices("ab", k=random.randint(0, 8)))
        tenant = random.randrange(3)
        if random.random() < 0.05:
            tree.remove(tenant)
            seen[tenant] = []
        tree.insert(text, tenant)
        seen[tenant].append(text)
        asked = "".join(random.choices("ab", k=8))
        longest = {
            tenant: max((common(text, asked) for text in texts), default=0) for tenant, texts in seen.items()
        }
        length, having = tree.match(asked, [0, 1, 2])
        assert length == max(longest.values())
        assert having == [tenant for tenant in longest if longest[tenant] == length and length]
    prefixes = sum(
        len({text[:size] for text in texts for size in range(1, len(text) + 1)}) for texts in seen.values()
    )
    assert tree.size == prefixes
    tree.evict(0)
    assert tree.size == 0
