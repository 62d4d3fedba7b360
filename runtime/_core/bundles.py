"""Packing of placement-group bundles onto nodes, and the names that resources have inside a group.

The strategies: PACK puts bundles together as far as they fit, SPREAD apart as far as there are nodes,
STRICT_PACK on one node or nowhere, STRICT_SPREAD each on its own node or nowhere.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heapreplace, nsmallest
from itertools import groupby
from typing import Any

from runtime._core.nodeview import NodeView, accepts, measured, utilization
from runtime._core.resources import UNIT, fits, subtract

STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")

BUNDLE_UNITS = 1000 * UNIT
"""How much of its marker resource a bundle offers: room for a thousand zero-resource tasks at a time."""

GROUP_HEX_DIGITS = 36  # of a placement group's id
_GROUP_NAME = r"_group_(?:\d+_)?[0-9a-f]{36}\Z"  # compiled when there is one
BUNDLE_MARKER = "bundle"
"""Every bundle offers this resource, so that a request for nothing can be tied to the bundle."""

Bundle = Mapping[str, int]
Key = Callable[[Bundle, NodeView, bool], tuple[Any, ...]]
"""How much a node is wanted for a bundle, less being more; the flag: it holds one of the group already."""


def place_bundles(
    bundles: Sequence[Bundle],
    strategy: str,
    nodes: Sequence[NodeView],
    *,
    rng: random.Random,
    placed: Sequence[bytes] = (),
    selectors: Sequence[Mapping[str, str]] = (),
    target: bytes = b"",
    domain: str = "",
) -> list[bytes] | None:
    """Chooses a node per bundle among what is available now.

    Args:
        bundles: resources per bundle.
        strategy: one of `STRATEGIES`.
        nodes: the cluster; unschedulable nodes count as absent. Not changed.
        rng: breaks ties.
        placed: `placed[i]` non-empty keeps bundle i there; its resources are taken already.
        selectors: label selector per bundle, or none at all.
        target: STRICT_PACK: the node that goes first, if it has room.
        domain: a label's key: all bundles go to nodes that have the same value of it.

    Returns:
        A node id per bundle, or None when they do not fit now.

    Raises:
        ValueError: the strategy is unknown.
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"unknown placement strategy {strategy!r}; use one of {', '.join(STRATEGIES)}")
    if domain:
        for part in _domains(nodes, domain, set(placed)):
            found_in = place_bundles(
                bundles, strategy, part, rng=rng, placed=placed, selectors=selectors, target=target
            )
            if found_in is not None:
                return found_in
        return None
    result = [*placed, *(b"" for _ in range(len(bundles) - len(placed)))]
    todo = [index for index, node_id in enumerate(result) if not node_id]
    if not todo:
        return result
    free = [node for node in nodes if node.schedulable]
    taken = {node_id for node_id in result if node_id}
    wanted = {index: (bundles[index], selectors[index] if selectors else {}) for index in todo}
    if strategy == "STRICT_PACK":
        found = _on_one_node(wanted, free, taken, rng, target)
    elif strategy == "STRICT_SPREAD":
        found = _on_distinct_nodes(wanted, free, taken, rng)
    elif strategy == "PACK":
        found = _on_one_node(wanted, free, taken, rng) or _in_some_order(
            wanted, free, taken, _most_together, rng
        )
    else:
        found = _in_some_order(wanted, free, taken, _most_apart, rng)
    if found is None:
        return None
    for index, node_id in found.items():
        result[index] = node_id
    return result


def bundles_feasible(
    bundles: Sequence[Bundle],
    strategy: str,
    nodes: Sequence[NodeView],
    *,
    selectors: Sequence[Mapping[str, str]] = (),
    domain: str = "",
) -> bool:
    """Whether the bundles would fit if every node were idle."""
    idle = [NodeView(n.node_id, n.total, dict(n.total), n.labels, n.schedulable) for n in nodes]
    rng = random.Random(0)
    return place_bundles(bundles, strategy, idle, rng=rng, selectors=selectors, domain=domain) is not None


def _domains(nodes: Sequence[NodeView], key: str, taken: set[bytes]) -> list[list[NodeView]]:
    """The nodes by their value of a label; only those of the value that `taken` nodes have, if there are any."""
    parts: dict[str, list[NodeView]] = {}
    for node in nodes:
        value = node.labels.get(key)
        if value is not None:
            parts.setdefault(value, []).append(node)
    held = [part for part in parts.values() if any(node.node_id in taken for node in part)]
    return held or list(parts.values())


_Wanted = Mapping[int, tuple[Bundle, Mapping[str, str]]]


def _on_one_node(
    wanted: _Wanted, nodes: list[NodeView], taken: set[bytes], rng: random.Random, target: bytes = b""
) -> dict[int, bytes] | None:
    """All on one node; on the one that holds the rest of the group, if there is a rest."""
    together: dict[str, int] = {}
    for bundle, _ in wanted.values():
        for name, amount in bundle.items():
            together[name] = together.get(name, 0) + amount
    selectors = {tuple(selector.items()): selector for _, selector in wanted.values()}.values()
    candidates = [
        node
        for node in nodes
        if (not taken or taken == {node.node_id})
        and fits(together, node.available)
        and all(accepts(node, selector) for selector in selectors)
    ]
    if not candidates:
        return None
    best = min(candidates, key=lambda node: (node.node_id != target, _waste(together, node), rng.random()))
    return dict.fromkeys(wanted, best.node_id)


def _in_some_order(
    wanted: _Wanted, nodes: list[NodeView], taken: set[bytes], key: Key, rng: random.Random
) -> dict[int, bytes] | None:
    """One by one, biggest first; where that leads nowhere and bundles differ, those with the fewest nodes first."""
    biggest = _biggest_first(wanted, nodes)
    found = _one_by_one(wanted, biggest, list(nodes), taken, key, rng)
    if found is None and (pickiest := _pickiest_first(wanted, biggest, nodes)) != biggest:
        found = _one_by_one(wanted, pickiest, list(nodes), taken, key, rng)
    return found


def _one_by_one(
    wanted: _Wanted,
    order: Sequence[int],
    nodes: list[NodeView],
    taken: set[bytes],
    key: Key,
    rng: random.Random,
) -> dict[int, bytes] | None:
    """The bundles in order, each on the node with the smallest `key` among those that have room."""
    used = set(taken)
    found: dict[int, bytes] = {}
    rng.shuffle(nodes)
    copied: set[int] = set()
    for _, alike in groupby(order, key=wanted.__getitem__):
        indices = list(alike)
        bundle, selector = wanted[indices[0]]
        # Placing a bundle changes one node alone, so that equal bundles need not look at all of them again.
        heap = [
            (key(bundle, node, node.node_id in used), position)
            for position, node in enumerate(nodes)
            if fits(bundle, node.available) and accepts(node, selector)
        ]
        heapify(heap)
        for index in indices:
            if not heap:
                return None
            position = heap[0][1]
            node = nodes[position]
            if position not in copied:
                copied.add(position)
                node = nodes[position] = node.copy()
            subtract(node.available, bundle)
            used.add(node.node_id)
            found[index] = node.node_id
            if fits(bundle, node.available):
                heapreplace(heap, (key(bundle, node, True), position))
            else:
                heappop(heap)
    return found


def _most_together(bundle: Bundle, node: NodeView, is_used: bool) -> tuple[Any, ...]:
    return not is_used, _waste(bundle, node)


def _most_apart(bundle: Bundle, node: NodeView, is_used: bool) -> tuple[Any, ...]:
    return is_used, _idle_gpu(bundle, node), utilization(node, measured(bundle))


def _on_distinct_nodes(
    wanted: _Wanted, nodes: list[NodeView], taken: set[bytes], rng: random.Random
) -> dict[int, bytes] | None:
    """A maximum matching of bundles to nodes by augmenting paths (Kuhn): exact, so that no feasible group
    is refused.
    """
    free = [node for node in nodes if node.node_id not in taken]
    if len(free) < len(wanted):
        return None
    choices: dict[int, list[bytes]] = {}
    known: list[tuple[Bundle, Mapping[str, str], list[bytes]]] = []
    for index, (bundle, selector) in wanted.items():
        alike = next((ids for other, its, ids in known if other == bundle and its == selector), None)
        if alike is not None:
            choices[index] = alike
            continue
        able = [node for node in free if fits(bundle, node.available) and accepts(node, selector)]
        # As many as there are bundles will do: the others cannot take them all.
        best = nsmallest(len(wanted), able, key=lambda node: (_waste(bundle, node), rng.random()))
        choices[index] = [node.node_id for node in best]
        known.append((bundle, selector, choices[index]))
    holder: dict[bytes, int] = {}
    # Equal bundles share one list, and a node that is taken stays taken: none is looked at twice.
    unseen = {id(ids): iter(ids) for ids in choices.values()}
    for index in sorted(wanted, key=lambda index: len(choices[index])):
        node_id = next((other for other in unseen[id(choices[index])] if other not in holder), None)
        if node_id is not None:
            holder[node_id] = index
        elif not _augment(index, choices, holder):
            return None
    return {index: node_id for node_id, index in holder.items()}


def _augment(root: int, choices: Mapping[int, Sequence[bytes]], holder: dict[bytes, int]) -> bool:
    """Finds a node for bundle `root`, moving others along an alternating path if it must."""
    came_from: dict[bytes, int] = {}
    frontier = [root]
    seen: set[int] = set()
    for index in frontier:
        if id(choices[index]) in seen:
            continue
        seen.add(id(choices[index]))
        for node_id in choices[index]:
            if node_id in came_from:
                continue
            came_from[node_id] = index
            if node_id in holder:
                frontier.append(holder[node_id])
                continue
            _shift(node_id, root, came_from, holder)
            return True
    return False


def _shift(free: bytes, root: int, came_from: Mapping[bytes, int], holder: dict[bytes, int]) -> None:
    node_of = {index: node_id for node_id, index in holder.items()}
    node_id = free
    while True:
        index = came_from[node_id]
        holder[node_id] = index
        if index == root:
            return
        node_id = node_of[index]


def _biggest_first(wanted: _Wanted, nodes: Sequence[NodeView]) -> list[int]:
    """Bundles in the order of the largest share of any resource they ask for; GPUs before the rest."""
    largest: dict[str, int] = {}
    for node in nodes:
        for name, amount in node.total.items():
            largest[name] = max(largest.get(name, 0), amount)

    def size(index: int) -> tuple[int, float, int]:
        bundle = wanted[index][0]
        share = max((amount / largest.get(name, amount) for name, amount in bundle.items()), default=0.0)
        return bundle.get("GPU", 0), share, sum(bundle.values())

    return sorted(wanted, key=size, reverse=True)


def _pickiest_first(wanted: _Wanted, order: Sequence[int], nodes: Sequence[NodeView]) -> list[int]:
    """Bundles that few nodes could take now before those that many could; otherwise as they were."""
    counts: dict[int, int] = {}
    for _, alike in groupby(order, key=wanted.__getitem__):
        indices = list(alike)
        bundle, selector = wanted[indices[0]]
        able = sum(1 for node in nodes if fits(bundle, node.available) and accepts(node, selector))
        counts.update(dict.fromkeys(indices, able))
    return sorted(order, key=counts.__getitem__)


def _idle_gpu(bundle: Bundle, node: NodeView) -> bool:
    return "GPU" not in bundle and bool(node.total.get("GPU"))


def _waste(bundle: Bundle, node: NodeView) -> tuple[bool, float]:
    """Best fit: no GPU node for CPU work, then the least that is left over of what the bundle asks for."""
    left = 0.0
    for name, amount in bundle.items():
        size = node.total.get(name, 0)
        if size:
            left += (node.available.get(name, 0) - amount) / size
    return _idle_gpu(bundle, node), left


# ---------------------------------------------------------------- names inside a group


def group_resources(resources: Mapping[str, int], pg_hex: str, index: int) -> dict[str, int]:
    """What a committed bundle offers: each resource under the bundle's and the group's name, and their
    markers.
    """
    out: dict[str, int] = {}
    for name, amount in {**resources, BUNDLE_MARKER: BUNDLE_UNITS}.items():
        out[f"{name}_group_{index}_{pg_hex}"] = amount
        out[f"{name}_group_{pg_hex}"] = amount
    return out


def rewrite_for_group(resources: Mapping[str, int], pg_hex: str, index: int) -> dict[str, int]:
    """What a task or actor in the group asks for; `index` -1 means any bundle.

    A request for one bundle takes from the group's common name too, so that requests for any bundle see
    what is left. A request for nothing takes a sliver of the marker, which ties it to the group's nodes.
    """
    wanted = {name: amount for name, amount in resources.items() if amount} or {
        BUNDLE_MARKER: max(1, UNIT // 1000)
    }
    out: dict[str, int] = {}
    for name, amount in wanted.items():
        if index >= 0:
            out[f"{name}_group_{index}_{pg_hex}"] = amount
        out[f"{name}_group_{pg_hex}"] = amount
    return out


def base_name(name: str) -> str:
    """The name of a resource without the group and bundle that it may stand in."""
    return re.sub(_GROUP_NAME, "", name) if "_group_" in name else name


def without_groups(amounts: Mapping[str, float]) -> dict[str, float]:
    """What a holder of these resources has of each, in or out of a group, without the markers of bundles."""
    out: dict[str, float] = {}
    for name, amount in amounts.items():
        base = base_name(name)
        if base != name and base == BUNDLE_MARKER:
            continue
        out[base] = max(amount, out.get(base, 0.0))
    return out


def is_group_resource(name: str) -> bool:
    """Whether the name belongs to a placement group's bundle."""
    return "_group_" in name and re.search(_GROUP_NAME, name) is not None
