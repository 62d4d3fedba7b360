"""Which bundle of its placement group a request for any bundle takes. Pure.

A task that needs only CPUs must not sit in the bundle that has the GPU while another bundle would do: the task that
needs the GPU would wait without end. So the bundle with the least that the request has no use for goes first, then the
one that the request fills best.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .accelerators import HARDWARE
from .bundles import BUNDLE_MARKER, GROUP_HEX_DIGITS
from .nodeview import NodeView

Preference = tuple[int, int, float]
"""How much a bundle offers that a request does not use, less being better: kinds of accelerators, other resources,
and the free part that the request would leave of what it does use."""


def preference(wanted: Mapping[str, int], offered: Mapping[str, int], free: Mapping[str, int]) -> Preference:
    """How well a bundle suits a request. All three go by the plain names of resources.

    Args:
        wanted: the request.
        offered: all that the bundle reserved.
        free: what is left of it.
    """
    unused = [name for name in offered if not wanted.get(name) and name != BUNDLE_MARKER]
    accelerators = sum(name in HARDWARE for name in unused)
    left = sum(
        (free.get(name, 0) - amount) / offered[name] for name, amount in wanted.items() if offered.get(name)
    )
    # The marker bounds how many tasks a bundle may hold; it is no reason to put them into the same one.
    is_marker_alone = wanted.keys() == {BUNDLE_MARKER}
    return accelerators, len(unused) - accelerators, 0.0 if is_marker_alone else left


def any_bundle(request: Mapping[str, int]) -> tuple[dict[str, int], str] | None:
    """The amounts by plain name and the group (hex), if the request is for any bundle of a group."""
    wanted: dict[str, int] = {}
    pg_hex = ""
    for name, amount in request.items():
        base, mark, place = name.rpartition("_group_")
        if mark and len(place) == GROUP_HEX_DIGITS:
            pg_hex, wanted[base] = place, amount
        elif mark:
            return None
    return (wanted, pg_hex) if pg_hex else None


def with_best_bundles(
    wanted: Mapping[str, int], pg_hex: str, nodes: Sequence[NodeView], locality: Mapping[bytes, int]
) -> list[NodeView]:
    """The nodes that have the bundles of the group which suit the request best; none if no bundle has room for it.

    Args:
        locality: bytes of the request's arguments per node. They matter more than which bundle is filled best.
    """
    ranked = [(rank, node) for node in nodes if (rank := _best_on(wanted, pg_hex, node)) is not None]
    if len(ranked) > 1:
        least = min(rank[:2] for rank, _ in ranked)
        ranked = [(rank, node) for rank, node in ranked if rank[:2] == least]
        if not any(node.node_id in locality for _, node in ranked):
            best = min(rank for rank, _ in ranked)
            ranked = [(rank, node) for rank, node in ranked if rank == best]
    return [node for _, node in ranked]


def _best_on(wanted: Mapping[str, int], pg_hex: str, node: NodeView) -> Preference | None:
    offers = _offers(pg_hex, node)
    available = node.available
    free = {
        index: {base: available.get(f"{base}_group_{index}_{pg_hex}", 0) for base in offered}
        for index, offered in offers.items()
    }
    # What was placed there since the node's last report is deducted from the group's name alone. Most likely it takes
    # the bundles that would suit this request best, so the others decide, if there are any.
    taken = {
        base: sum(amounts.get(base, 0) for amounts in free.values())
        - available.get(f"{base}_group_{pg_hex}", 0)
        for base in wanted
    }
    best = None
    for rank, index in sorted((preference(wanted, offers[index], free[index]), index) for index in offers):
        amounts = free[index]
        if all(amounts.get(base, 0) >= amount for base, amount in wanted.items()):
            best = rank
            if all(amounts[base] - max(taken[base], 0) >= amount for base, amount in wanted.items()):
                break
            for base in wanted:
                taken[base] -= amounts[base]
    return best


def _offers(pg_hex: str, node: NodeView) -> dict[str, dict[str, int]]:
    """What each bundle of the group on this node reserved, by its index."""
    suffix = f"_{pg_hex}"
    offers: dict[str, dict[str, int]] = {}
    for name, amount in node.total.items():
        if name.endswith(suffix):
            base, _, index = name[: -len(suffix)].rpartition("_group_")
            if index.isdigit():
                offers.setdefault(index, {})[base] = amount
    return offers
