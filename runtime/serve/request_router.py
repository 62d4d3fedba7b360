"""Routers of one's own: which replicas a request should go to.

Subclass `RequestRouter` (with the mixins that help) and name the class in `RequestRouterConfig`. A caller asks
`choose_replicas` for each request; the replica with a slot in the first rank gets it, else one of the next rank. A
replica never gets more than `max_ongoing_requests`, whatever a router says.
"""

from __future__ import annotations

import asyncio
import random
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from runtime.serve._core.published import Target
from runtime.serve._core.slots import Borrower
from runtime.serve.context import DeploymentID, ReplicaID

__all__ = [
    "DefaultRequestRouter",
    "FIFOMixin",
    "LocalityMixin",
    "LocalityScope",
    "MultiplexMixin",
    "PendingRequest",
    "PowerOfTwoChoicesRequestRouter",
    "ReplicaID",
    "RequestMetadata",
    "RequestRouter",
    "RequestRoutingContext",
    "RunningReplica",
]

MATCHING_S = 1.0
"""How long a request is kept for the replicas that have loaded its model."""


@dataclass
class RequestMetadata:
    """What is known of a request besides its arguments.

    Attributes:
        request_id: as in logs and the header x-request-id.
        internal_request_id: unique in this process.
        call_method: the method of the deployment.
        route: the path of its route; "" for calls by a handle.
        multiplexed_model_id, session_id: "" for none.
        is_streaming: it answers with a stream.
    """

    request_id: str
    internal_request_id: str
    call_method: str = "__call__"
    route: str = ""
    app_name: str = ""
    multiplexed_model_id: str = ""
    session_id: str = ""
    is_streaming: bool = False


@dataclass
class RequestRoutingContext:
    """What the mixins remember of a request between two choices."""

    multiplexed_start_matching_time: float | None = None
    tried_fewest_multiplexed_models: bool = False
    tried_first_multiplexed_models: bool = False
    tried_same_node: bool = False
    tried_same_az: bool = False
    should_backoff: bool = False


@dataclass
class PendingRequest:
    """A request that waits for a replica.

    Attributes:
        args, kwargs: of the call; the one argument of an HTTP request describes it.
        created_at: seconds since the epoch.
    """

    args: list[Any]
    kwargs: dict[Any, Any]
    metadata: RequestMetadata
    created_at: float = field(default_factory=time.time)
    routing_context: RequestRoutingContext = field(default_factory=RequestRoutingContext)


class RunningReplica:
    """A replica that takes requests, as routers see it."""

    def __init__(self, target: Target, borrower: Borrower[Any]) -> None:
        self.name = target.replica
        self._replica_id = ReplicaID.parse(target.replica)
        self._borrower = borrower
        self.describe(target, frozenset(), {})

    def describe(self, target: Target, models: Collection[str], statistics: dict[str, Any]) -> None:
        """What the controller and the replica have told last."""
        self._target = target
        self._models = set(models)
        self._statistics = statistics

    @property
    def replica_id(self) -> ReplicaID:
        """Which one it is."""
        return self._replica_id

    @property
    def node_id(self) -> str:
        """Its node, in hex."""
        return self._target.node

    @property
    def availability_zone(self) -> str | None:
        """The zone of its node, if that is known."""
        return self._target.zone or None

    @property
    def multiplexed_model_ids(self) -> set[str]:
        """The models that it has loaded."""
        return self._models

    @property
    def routing_stats(self) -> dict[str, Any]:
        """What its `record_routing_stats` returned last."""
        return self._statistics

    @property
    def max_ongoing_requests(self) -> int:
        """How many requests it runs at once."""
        return self._target.slots

    @property
    def ongoing_requests(self) -> int:
        """How many of this process's requests it runs."""
        return self._borrower.running(self.name)

    @property
    def is_full(self) -> bool:
        """Whether it has told that it has no slot, or this process alone uses all."""
        return self._borrower.is_full(self.name)

    def __repr__(self) -> str:
        return f"RunningReplica({self.name!r})"


class QueueLengths:
    """How many requests of this process replicas run."""

    def __init__(self, replicas: dict[ReplicaID, RunningReplica]) -> None:
        self._replicas = replicas

    def get(self, replica_id: ReplicaID) -> int | None:
        """None of an unknown replica."""
        replica = self._replicas.get(replica_id)
        return replica.ongoing_requests if replica is not None else None


class RequestRouter(ABC):
    """Base of routers. One is made in each process that calls the deployment, on its event loop.

    Args:
        deployment_id: the deployment.
        initial_backoff_s, backoff_multiplier, max_backoff_s: how long a request waits before the router is asked again.
    """

    def __init__(
        self,
        deployment_id: DeploymentID,
        *_args: Any,
        initial_backoff_s: float = 0.025,
        backoff_multiplier: float = 2.0,
        max_backoff_s: float = 0.5,
        get_curr_time_s: Callable[[], float] | None = None,
        **_kwargs: Any,
    ) -> None:
        self._deployment_id = deployment_id
        self.initial_backoff_s = initial_backoff_s
        self.backoff_multiplier = backoff_multiplier
        self.max_backoff_s = max_backoff_s
        self._get_curr_time_s = get_curr_time_s or time.time
        self._replicas: dict[ReplicaID, RunningReplica] = {}
        self._replica_id_set: set[ReplicaID] = set()
        self._replicas_list: list[RunningReplica] = []

    def initialize_state(self, **kwargs: Any) -> None:  # noqa: B027
        """Is called once with `request_router_kwargs`. To be overridden."""

    @property
    def app_name(self) -> str:
        """The application of the deployment."""
        return self._deployment_id.app_name

    @property
    def curr_replicas(self) -> dict[ReplicaID, RunningReplica]:
        """The replicas that take requests."""
        return self._replicas

    @property
    def replica_queue_len_cache(self) -> QueueLengths:
        """How many requests of this process replicas run."""
        return QueueLengths(self._replicas)

    @property
    def _event_loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Other replicas take requests, or they have told something."""
        self._replicas = {replica.replica_id: replica for replica in replicas}
        self._replica_id_set = set(self._replicas)
        self._replicas_list = list(replicas)
        if isinstance(self, LocalityMixin):
            self._update_colocated_replica_ids_with_replicas(replicas)
        if isinstance(self, MultiplexMixin):
            self._update_multiplexed_model_ids_with_replicas(replicas)

    def on_replica_actor_died(self, replica_id: ReplicaID) -> None:  # noqa: B027
        """A replica takes no requests any more. `update_replicas` follows."""

    def select_available_replicas(
        self, candidates: list[RunningReplica] | None = None
    ) -> list[RunningReplica]:
        """Those of the candidates (None: of all) that may have a slot."""
        return [
            replica
            for replica in (self._replicas_list if candidates is None else candidates)
            if not replica.is_full
        ]

    @abstractmethod
    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """Ranks replicas for a request: the best first, equals in one list. It is asked again, after a pause, while the
        request waits.

        Args:
            candidate_replicas: those that take requests.
            pending_request: the request.
        """

    def on_request_routed(  # noqa: B027
        self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any
    ) -> None:
        """A request was sent to a replica. To be overridden."""

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:  # noqa: B027
        """A request does not run any more. To be overridden."""

    def _compute_backoff_s(self, attempt: int) -> float:
        # A large exponent would overflow long after the limit is reached.
        factor = self.backoff_multiplier ** min(attempt, 32)
        return min(self.max_backoff_s, self.initial_backoff_s * factor)


class LocalityScope(StrEnum):
    """How near a replica is."""

    NODE = "NODE"
    AVAILABILITY_ZONE = "AVAILABILITY_ZONE"


class LocalityMixin(RequestRouter):
    """Knows which replicas are on the node, or in the zone, of this process."""

    def __init__(
        self,
        deployment_id: DeploymentID,
        *args: Any,
        self_node_id: str | None = None,
        prefer_local_node_routing: bool = False,
        prefer_local_az_routing: bool = False,
        self_availability_zone: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(deployment_id, *args, **kwargs)
        self._self_node_id = self_node_id
        self._prefer_local_node_routing = prefer_local_node_routing
        self._prefer_local_az_routing = prefer_local_az_routing
        self._self_availability_zone = self_availability_zone
        self._colocated_replica_ids: dict[LocalityScope, set[ReplicaID]] = defaultdict(set)

    def _update_colocated_replica_ids_with_replicas(self, replicas: list[RunningReplica]) -> None:
        zone = self._self_availability_zone
        self._colocated_replica_ids = defaultdict(
            set,
            {
                LocalityScope.NODE: {
                    replica.replica_id for replica in replicas if replica.node_id == self._self_node_id
                },
                LocalityScope.AVAILABILITY_ZONE: {
                    replica.replica_id
                    for replica in replicas
                    if zone is not None and replica.availability_zone == zone
                },
            },
        )

    def apply_locality_routing(self, pending_request: PendingRequest | None = None) -> set[ReplicaID]:
        """The candidates for this choice: of the same node at the first one, then of the same zone, then all."""
        if pending_request is None:
            return self._replica_id_set
        context = pending_request.routing_context
        same_node = self._colocated_replica_ids[LocalityScope.NODE]
        if self._prefer_local_node_routing and not context.tried_same_node and same_node:
            context.tried_same_node, context.should_backoff = True, False
            return same_node
        same_zone = self._colocated_replica_ids[LocalityScope.AVAILABILITY_ZONE]
        if self._prefer_local_az_routing and not context.tried_same_az and same_zone:
            context.tried_same_az, context.should_backoff = True, False
            return same_zone
        context.should_backoff = True
        return self._replica_id_set

    def rank_replicas_via_locality(self, replicas: list[RunningReplica]) -> list[list[RunningReplica]]:
        """Three ranks: on the same node, in the same zone, all others."""
        ranks: list[list[RunningReplica]] = [[], [], []]
        for replica in replicas:
            if replica.replica_id in self._colocated_replica_ids[LocalityScope.NODE]:
                ranks[0].append(replica)
            elif replica.replica_id in self._colocated_replica_ids[LocalityScope.AVAILABILITY_ZONE]:
                ranks[1].append(replica)
            else:
                ranks[2].append(replica)
        return ranks


class MultiplexMixin(RequestRouter):
    """Knows which replicas have loaded which models."""

    def __init__(self, deployment_id: DeploymentID, *args: Any, **kwargs: Any) -> None:
        super().__init__(deployment_id, *args, **kwargs)
        self._multiplexed_model_id_to_replica_ids: dict[str, set[ReplicaID]] = defaultdict(set)

    def _update_multiplexed_model_ids_with_replicas(self, replicas: list[RunningReplica]) -> None:
        having: dict[str, set[ReplicaID]] = defaultdict(set)
        for replica in replicas:
            for model_id in replica.multiplexed_model_ids:
                having[model_id].add(replica.replica_id)
        self._multiplexed_model_id_to_replica_ids = having

    def _get_replica_ids_with_fewest_multiplexed_models(self) -> set[ReplicaID]:
        counts = {key: len(replica.multiplexed_model_ids) for key, replica in self._replicas.items()}
        fewest = min(counts.values(), default=0)
        return {replica_id for replica_id, count in counts.items() if count == fewest}

    def apply_multiplex_routing(self, pending_request: PendingRequest | None = None) -> set[ReplicaID]:
        """The candidates for this choice: for a second those that have the model (if none has, those with the fewest
        models), then once those with the fewest models, then all."""
        if pending_request is None:
            return self._replica_id_set
        context = pending_request.routing_context
        context.should_backoff = True
        now = self._get_curr_time_s()
        if context.multiplexed_start_matching_time is None:
            context.multiplexed_start_matching_time = now
        if now - context.multiplexed_start_matching_time < MATCHING_S:
            context.tried_first_multiplexed_models = True
            having = self._multiplexed_model_id_to_replica_ids.get(
                pending_request.metadata.multiplexed_model_id
            )
            return having or self._get_replica_ids_with_fewest_multiplexed_models()
        if not context.tried_fewest_multiplexed_models:
            context.tried_fewest_multiplexed_models = True
            return self._get_replica_ids_with_fewest_multiplexed_models()
        return self._replica_id_set

    def rank_replicas_via_multiplex(
        self, replicas: list[RunningReplica], multiplexed_model_id: str
    ) -> list[list[RunningReplica]]:
        """Three ranks: with the model, with the fewest models, all others."""
        having = self._multiplexed_model_id_to_replica_ids.get(multiplexed_model_id, set())
        fewest = self._get_replica_ids_with_fewest_multiplexed_models()
        ranks: list[list[RunningReplica]] = [[], [], []]
        for replica in replicas:
            if replica.replica_id in having:
                ranks[0].append(replica)
            elif replica.replica_id in fewest:
                ranks[1].append(replica)
            else:
                ranks[2].append(replica)
        return ranks


class FIFOMixin(RequestRouter):
    """Requests that wait for the same replicas are served in the order in which they came. Callers do so for every
    router; the mixin is there for programs that name it."""


class PowerOfTwoChoicesRequestRouter(FIFOMixin, LocalityMixin, MultiplexMixin):
    """Two replicas at random, the one with fewer requests of this process first: of those with the model of the
    request, or else of those on the same node, if there are any."""

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """See `RequestRouter.choose_replicas`."""
        if pending_request is not None and pending_request.metadata.multiplexed_model_id:
            ids = self.apply_multiplex_routing(pending_request)
        else:
            ids = self.apply_locality_routing(pending_request)
        known = [self._replicas[replica_id] for replica_id in ids if replica_id in self._replicas]
        two = random.sample(known, min(2, len(known)))
        two.sort(key=lambda replica: replica.ongoing_requests)
        return [[replica] for replica in two]


DefaultRequestRouter = PowerOfTwoChoicesRequestRouter
"""What callers do without a router of one's own follows the same rules, but asks no replica twice: see
`runtime.serve._core.slots.Borrower`."""
