"""Which replicas have seen which beginnings of texts: a radix tree."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


@dataclass(eq=False, slots=True)
class _Node(Generic[T]):
    """A part of texts, after the parts of its parents.

    Attributes:
        used: for each tenant that has seen it, when it did last. A tenant of a node is one of all its parents.
    """

    text: str
    parent: _Node[T] | None
    children: dict[str, _Node[T]] = field(default_factory=dict)
    used: dict[T, int] = field(default_factory=dict)


class PrefixTree(Generic[T]):
    """Texts by tenant. Time is the number of insertions."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node("", None)
        self._now = 0
        self._sizes: dict[T, int] = {}

    @property
    def size(self) -> int:
        """Characters of all tenants together; those that two share count twice."""
        return sum(self._sizes.values())

    def size_of(self, tenant: T) -> int:
        """Characters of a tenant."""
        return self._sizes.get(tenant, 0)

    def insert(self, text: str, tenant: T) -> None:
        """The tenant has seen the text."""
        self._now += 1
        node, place = self._root, 0
        self._use(node, tenant)
        while place < len(text):
            child = node.children.get(text[place])
            if child is None:
                child = node.children[text[place]] = _Node(text[place:], node)
            else:
                common = _common(child.text, text, place)
                if common < len(child.text):
                    child = self._split(child, common)
            self._use(child, tenant)
            node, place = child, place + len(child.text)

    def match(self, text: str, tenants: Collection[T]) -> tuple[int, list[T]]:
        """The longest beginning of the text that one of the tenants has seen.

        Returns:
            Its length, and all of the tenants that have seen it. (0, []) if none has seen a first character.
        """
        node, place = self._root, 0
        length, found = 0, set[T]()
        while place < len(text):
            child = node.children.get(text[place])
            if child is None:
                break
            having = {tenant for tenant in tenants if tenant in child.used}
            if not having:
                break
            common = _common(child.text, text, place)
            length, found = place + common, having
            if common < len(child.text):
                break
            node, place = child, place + common
        return length, [tenant for tenant in tenants if tenant in found]

    def remove(self, tenant: T) -> None:
        """Forgets a tenant."""
        pending = [self._root]
        while pending:
            node = pending.pop()
            pending += [child for child in node.children.values() if tenant in child.used]
            self._drop(node, tenant)
        self._sizes.pop(tenant, None)

    def evict(self, target: int) -> None:
        """Forgets the ends of texts that were not used for the longest time, until `size` is at most the target."""
        oldest: list[tuple[int, int, _Node[T], T]] = []
        number = 0

        def consider(node: _Node[T], tenant: T) -> None:
            nonlocal number
            if node is not self._root and not any(tenant in child.used for child in node.children.values()):
                number += 1  # nodes cannot be compared
                heapq.heappush(oldest, (node.used[tenant], number, node, tenant))

        pending = [self._root]
        while pending:
            node = pending.pop()
            pending += node.children.values()
            for tenant in node.used:
                consider(node, tenant)
        size = self.size
        while size > target and oldest:
            _, _, node, tenant = heapq.heappop(oldest)
            parent = node.parent
            assert parent is not None
            self._drop(node, tenant)
            size -= len(node.text)
            consider(parent, tenant)

    def _use(self, node: _Node[T], tenant: T) -> None:
        if tenant not in node.used:
            self._sizes[tenant] = self._sizes.get(tenant, 0) + len(node.text)
        node.used[tenant] = self._now

    def _drop(self, node: _Node[T], tenant: T) -> None:
        """The tenant has not seen the node, nor what comes after it."""
        if node.used.pop(tenant, None) is not None:
            self._sizes[tenant] -= len(node.text)
        if not node.used and node.parent is not None:
            node.parent.children.pop(node.text[0], None)

    def _split(self, node: _Node[T], length: int) -> _Node[T]:
        """Makes the first characters of a node its parent, and returns that."""
        parent = node.parent
        assert parent is not None
        upper: _Node[T] = _Node(node.text[:length], parent, used=dict(node.used))
        parent.children[node.text[0]] = upper
        node.text, node.parent = node.text[length:], upper
        upper.children[node.text[0]] = node
        return upper


def _common(part: str, text: str, place: int) -> int:
    """How many characters of the part are also in the text from there on."""
    if text.startswith(part, place):
        return len(part)
    return next(
        (
            index
            for index, char in enumerate(part)
            if place + index >= len(text) or char != text[place + index]
        ),
        len(part),
    )
