"""Routes requests with the same beginning to the same replica, whose engine has its keys and values."""

from __future__ import annotations

import math
import random
from typing import Any

from runtime.serve.context import ReplicaID
from runtime.serve.llm._prefix_tree import PrefixTree
from runtime.serve.request_router import (
    LocalityMixin,
    MultiplexMixin,
    PendingRequest,
    RequestRouter,
    RunningReplica,
)

__all__ = ["PrefixCacheAffinityRouter"]


class PrefixCacheAffinityRouter(LocalityMixin, MultiplexMixin, RequestRouter):
    """Sends a request to the replica that has seen the longest beginning of its prompt.

    If no replica has seen enough of it, the one that has seen the least text gets it. If the load is imbalanced, the
    one with fewer requests of two chosen at random does. Each process that calls the deployment remembers what it has
    sent itself.
    """

    def initialize_state(  # type: ignore[override]
        self,
        imbalanced_threshold: float | None = math.inf,
        match_rate_threshold: float | None = 0.1,
        do_eviction: bool | None = True,
        eviction_threshold_chars: int | None = 400_000,
        eviction_target_chars: int | None = 360_000,
        eviction_interval_secs: int | None = None,
    ) -> None:
        """Takes `request_router_kwargs`.

        Args:
            imbalanced_threshold: load is imbalanced when one replica has at least so many more requests than another.
            match_rate_threshold: the share of the prompt that a replica must have seen.
            do_eviction: False remembers all prompts for ever.
            eviction_threshold_chars: when this many characters are remembered, the oldest are forgotten.
            eviction_target_chars: until this many are left.
            eviction_interval_secs: no effect: too many characters are forgotten at once.
        """
        self._imbalanced_threshold = math.inf if imbalanced_threshold is None else imbalanced_threshold
        self._match_rate_threshold = match_rate_threshold or 0.0
        self._threshold_chars = (eviction_threshold_chars or math.inf) if do_eviction else math.inf
        self._target_chars = (
            eviction_target_chars if eviction_target_chars is not None else eviction_threshold_chars or 0
        )
        self._tree: PrefixTree[ReplicaID] = PrefixTree()

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """See `RequestRouter.choose_replicas`."""
        candidates = candidate_replicas
        if pending_request is not None and pending_request.metadata.multiplexed_model_id:
            allowed = self.apply_multiplex_routing(pending_request)
            candidates = [replica for replica in candidates if replica.replica_id in allowed] or candidates
        if not candidates:
            return []
        loads = [replica.ongoing_requests for replica in candidates]
        text = prompt_text(pending_request)
        if not text or max(loads) - min(loads) >= self._imbalanced_threshold:
            two = random.sample(candidates, min(2, len(candidates)))
            two.sort(key=lambda replica: replica.ongoing_requests)
            return [[replica] for replica in two]
        length, having = self._tree.match(text, [replica.replica_id for replica in candidates])
        if having and length / len(text) >= self._match_rate_threshold:
            best = [replica for replica in candidates if replica.replica_id in having]
        else:
            sizes = [self._tree.size_of(replica.replica_id) for replica in candidates]
            best = [replica for replica, size in zip(candidates, sizes, strict=True) if size == min(sizes)]
        others = [replica for replica in candidates if replica not in best]
        return [best, others] if others else [best]

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any) -> None:
        """Remembers which replica has seen the prompt."""
        text = prompt_text(pending_request)
        if not text:
            return
        self._tree.insert(text, replica_id)
        if self._tree.size > self._threshold_chars:
            self._tree.evict(self._target_chars)

    def on_replica_actor_died(self, replica_id: ReplicaID) -> None:
        """Forgets the replica."""
        self._tree.remove(replica_id)


def prompt_text(pending_request: PendingRequest | None) -> str:
    """The text of the prompt, or of all messages; "" if the request has neither."""
    if pending_request is None:
        return ""
    for argument in [*pending_request.args, *pending_request.kwargs.values()]:
        for name in ("messages", "prompt"):
            found = argument.get(name) if isinstance(argument, dict) else getattr(argument, name, None)
            if found is not None:
                return _text(found)
    return ""


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(map(_text, value))
    if isinstance(value, dict):
        return _text(value["text"]) if "text" in value else _text(value.get("content"))
    return ""
