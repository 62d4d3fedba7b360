"""Which node a request goes to, and (from `bundles`) which nodes a placement group's bundles go to. Pure,
shared by the node agent, the control store and the autoscaler, so that no machine is launched for work that
the scheduler refuses.

Amounts are integers in 1/10 000 units. `available` of a `NodeView` is the caller's copy: deduct from it
between calls to place several requests in one go.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from enum import Enum

import msgspec

from runtime._core.bundle_choice import any_bundle, with_best_bundles
from runtime._core.bundles import (
    bundles_feasible,
    group_resources,
    is_group_resource,
    place_bundles,
    rewrite_for_group,
)
from runtime._core.nodeview import NodeView, accepts, measured, utilization
from runtime._core.resources import fits

__all__ = [
    "Choice",
    "Fit",
    "NodeView",
    "Request",
    "bundles_feasible",
    "choose_node",
    "group_resources",
    "is_group_resource",
    "place_bundles",
    "rewrite_for_group",
]

PACK_BELOW = 0.5
"""The default policy packs onto nodes that are less utilised than this, and spreads above it."""

BEST_FEW = 0.2
"""The default policy draws among this share of the nodes, the best ones, so that many placers do not all
pick one.
"""

_NOWHERE: Mapping[bytes, int] = {}


class Request(msgspec.Struct, frozen=True):
    """What one lease or actor needs of a node.

    Attributes:
        kind: DEFAULT, SPREAD or NODE_AFFINITY.
        node_id: of NODE_AFFINITY.
        soft: NODE_AFFINITY: any other node will do when that one is gone or too small.
        labels: selector that the node must satisfy.
        busy: NODE_AFFINITY: what to do while that node has no room: WAIT, SPILL (to another node) or FAIL.
        preferred: selector of the nodes that go first; others will do.
        fallbacks: further selectors; each is tried when no node of those before has room.
    """

    resources: Mapping[str, int]
    kind: str = "DEFAULT"
    node_id: bytes = b""
    soft: bool = False
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    busy: str = "WAIT"
    preferred: Mapping[str, str] = msgspec.field(default_factory=dict)
    fallbacks: tuple[Mapping[str, str], ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether the resources alone decide, by the default policy."""
        return self.kind == "DEFAULT" and not self.labels and not self.preferred and not self.fallbacks


class Fit(Enum):
    """Whether a request can be placed."""

    AVAILABLE = "available"
    WAITING = "waiting"  # some node could hold it, none has room now
    INFEASIBLE = "infeasible"  # no node of today could ever hold it
    IMPOSSIBLE = "impossible"  # hard affinity to a node that is gone, too small, or busy if that may not be


class Choice(msgspec.Struct, frozen=True):
    """The verdict; `node_id` is set when it is AVAILABLE."""

    fit: Fit
    node_id: bytes = b""


_WAITING = Choice(Fit.WAITING)
_INFEASIBLE = Choice(Fit.INFEASIBLE)
_IMPOSSIBLE = Choice(Fit.IMPOSSIBLE)


def choose_node(
    request: Request,
    nodes: Sequence[NodeView],
    *,
    local: bytes = b"",
    locality: Mapping[bytes, int] = _NOWHERE,
    rng: random.Random,
    spread_after: bytes = b"",
) -> Choice:
    """Chooses a node for one request.

    Args:
        request: what is to be placed.
        nodes: the cluster; unschedulable nodes count as absent.
        local: the node that the default policy prefers among equals (the asking agent's own).
        locality: bytes of the request's arguments per node; the node with the most goes first when it has
            room.
        rng: breaks ties of the default policy.
        spread_after: SPREAD goes round the nodes, and this one had the last turn.
    """
    if request.kind == "NODE_AFFINITY":
        choice = _affinity(request, nodes)
        if choice is not None:
            return choice
    feasible = False
    for selector in (request.labels, *request.fallbacks):
        open_nodes, is_feasible = _candidates(request.resources, selector, nodes)
        feasible = feasible or is_feasible
        if open_nodes:
            break
    else:
        return _WAITING if feasible else _INFEASIBLE
    if request.preferred:
        open_nodes = [node for node in open_nodes if accepts(node, request.preferred)] or open_nodes
    inside = any_bundle(request.resources)
    if inside is not None:
        wanted, pg_hex = inside
        open_nodes = with_best_bundles(wanted, pg_hex, open_nodes, locality)
        if not open_nodes:
            return _WAITING
    if len(open_nodes) == 1:
        return Choice(Fit.AVAILABLE, open_nodes[0].node_id)
    if request.kind == "SPREAD":
        return Choice(Fit.AVAILABLE, _spread(open_nodes, spread_after))
    chosen = _hybrid(request.resources, open_nodes, local, locality, rng, len(nodes))
    return Choice(Fit.AVAILABLE, chosen)


def _candidates(
    wanted: Mapping[str, int], selector: Mapping[str, str], nodes: Sequence[NodeView]
) -> tuple[list[NodeView], bool]:
    """The nodes that have room now, and whether any node could have it one day."""
    open_nodes: list[NodeView] = []
    feasible = False
    amounts = list(wanted.items())
    for node in nodes:  # without calls, as there may be thousands
        if not node.schedulable or (selector and not accepts(node, selector)):
            continue
        available = node.available
        for name, amount in amounts:
            if available.get(name, 0) < amount:
                feasible = feasible or fits(wanted, node.total)
                break
        else:
            open_nodes.append(node)
    return open_nodes, feasible


def _affinity(request: Request, nodes: Sequence[NodeView]) -> Choice | None:
    """The verdict of the wanted node, or None when a soft request may go elsewhere."""
    node = next((node for node in nodes if node.node_id == request.node_id), None)
    if node is not None and accepts(node, request.labels):
        if fits(request.resources, node.available):
            return Choice(Fit.AVAILABLE, node.node_id)
        # Resources of a placement group come and go with its bundles: their absence today proves nothing.
        own = {name: amount for name, amount in request.resources.items() if not is_group_resource(name)}
        if fits(own, node.total):
            if request.busy == "WAIT":
                return _WAITING
            return None if request.busy == "SPILL" else _IMPOSSIBLE
    return None if request.soft else _IMPOSSIBLE


def _spread(nodes: list[NodeView], after: bytes) -> bytes:
    """The next in turn. Not the least loaded: what is known of other nodes lags, and turns do not."""
    ring = sorted(node.node_id for node in nodes)
    return next((node_id for node_id in ring if node_id > after), ring[0])


def _hybrid(
    wanted: Mapping[str, int],
    nodes: list[NodeView],
    local: bytes,
    locality: Mapping[bytes, int],
    rng: random.Random,
    cluster_size: int,
) -> bytes:
    if locality:
        holder = max(nodes, key=lambda node: (locality.get(node.node_id, 0), node.node_id == local))
        if locality.get(holder.node_id, 0) > 0:
            return holder.node_id
    if "GPU" not in wanted:
        nodes = [node for node in nodes if not node.total.get("GPU")] or nodes
    names = measured(wanted)
    best_score, best = float("inf"), [b""]
    for node in nodes:
        load = utilization(node, names)
        score = load if load >= PACK_BELOW else 0.0
        if score < best_score:
            best_score, best = score, [node.node_id]
        elif score == best_score:
            best.append(node.node_id)
    if local in best and best_score == 0.0:
        return local
    few = int(cluster_size * BEST_FEW)
    if few <= 1:
        return local if local in best else min(best)
    # Equal scores only: a worse node is never drawn over a better one.
    best.sort(key=lambda node_id: (node_id != local, node_id))
    return rng.choice(best[:few])
