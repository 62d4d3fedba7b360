"""The requests of this process to one deployment: they wait here until a replica has a slot."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Protocol

from runtime.serve._core.published import Targets, load_targets
from runtime.serve._core.slots import Borrower
from runtime.serve._event_loops import running_loop
from runtime.serve._wire.messages import Call, Http, Want
from runtime.serve.context import Deadline, DeploymentID
from runtime.serve.exceptions import BackPressureError, DeploymentUnavailableError, ReplicaUnavailableError

from .demand import DemandReporter
from .exchange import Exchange, State
from .link import Link
from .measures import QueueMeasures
from .routing import ByModel, Routing

log = logging.getLogger(__name__)

STALL_S = 30.0
"""If requests wait and none is sent for this long, a warning says what they wait for."""


class QueueOwner(Protocol):
    """The caller that a queue belongs to."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Its loop."""

    @property
    def node(self) -> str:
        """Id of this node, in hex."""

    @property
    def name(self) -> str:
        """Names this process."""

    @property
    def demand(self) -> DemandReporter:
        """Tells the controller how many requests wait."""

    @property
    def measures(self) -> QueueMeasures:
        """Of the requests that wait."""

    @property
    def is_closed(self) -> bool:
        """Whether it takes no calls any more."""

    def spawn(self, work: Coroutine[Any, Any, None], ended: Callable[[], object] | None = None) -> None:
        """Runs a coroutine until it ends or the caller is closed."""

    def drop(self, queue: Queue) -> None:
        """Forgets the queue of a deployment that was deleted."""


class Queue:
    """Belongs to the caller's loop. Get it by `Caller.queue`.

    Args:
        was_deleted: a deployment of this name was. Requests do not wait for one that is not there.
    """

    def __init__(self, caller: QueueOwner, app: str, deployment: str, was_deleted: bool = False) -> None:
        self.caller = caller
        self.loop = caller.loop
        self.app, self.deployment = app, deployment
        self.targets: Targets | None = None
        """What the controller said last; None: nothing yet."""
        self.borrower: Borrower[Exchange] = Borrower(random.Random())
        self.links: dict[str, Link] = {}
        """Of all replicas that take requests, and of those that still answer some."""
        self._routing: Routing = ByModel(self)
        self._will_tell = False
        self._stall: asyncio.TimerHandle | None = None
        self._sent = 0  # requests, since the last look at `_stall`
        self._end: BaseException | None = None  # set by `close`
        self._was_deleted = was_deleted
        self._is_removed = False  # the controller has removed its targets
        self.is_dropped = False
        """Whether the caller has forgotten it: another one takes the calls of a deployment of this name."""
        self._has_targets = asyncio.Event()

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return self.borrower.waiting

    @property
    def deployment_id(self) -> DeploymentID:
        """For errors."""
        return DeploymentID(self.deployment, self.app)

    # ------------------------------------------------------------ requests

    async def begin(self, message: Call | Http, *, timeout_s: float | None = None) -> Exchange:
        """Sends a request once a replica has a slot for it. On the caller's loop; a cancelled wait leaves the queue.

        Args:
            message: its number does not matter.
            timeout_s: how long it may wait; None: without a limit.

        Raises:
            BackPressureError: `max_queued_requests` wait already.
            DeploymentUnavailableError: the deployment failed or was deleted.
            RaySystemError: the process leaves the cluster.
            ReplicaUnavailableError: the request is for certain replicas, which are gone.
            TimeoutError: no replica had a slot in time.
        """
        exchange = Exchange(self, message)
        self.start(exchange)
        if exchange.state is State.WAITING:
            exchange.begun = self.loop.create_future()
            try:
                async with asyncio.timeout(timeout_s):
                    await exchange.begun
            except TimeoutError:
                found = (
                    f"Request {message.meta.request_id} was not sent within {timeout_s} s; {self.waiting} requests "
                    f"wait here. {self.why_waiting()}"
                )
                exchange.cancel()
                raise TimeoutError(found) from None
            except asyncio.CancelledError:
                exchange.cancel()
                raise
        return exchange

    async def first_targets(self) -> Targets:
        """The targets, once the controller has published any. On the caller's loop."""
        await self._has_targets.wait()
        assert self.targets is not None
        return self.targets

    def start(self, exchange: Exchange) -> None:
        """Sends a new request, or lets it wait.

        Raises: see `begin`.
        """
        if self._end is not None:
            raise self._end
        targets = self.targets
        if targets is not None:
            if targets.state != "running":
                raise self._unavailable(targets)
            if self._is_stranded(exchange):
                raise self._gone(exchange)
            if 0 <= targets.most_queued <= self.borrower.waiting and self._queued() >= targets.most_queued:
                raise BackPressureError(self._queued(), targets.most_queued, **targets.backpressure)
        self._ask(exchange, first=False)

    def start_or_fail(self, exchange: Exchange) -> None:
        """`start` for requests with a sink, which takes the error."""
        if exchange.state is State.ENDED:
            return  # it was cancelled before it came here
        deadline = exchange.deadline
        try:
            self.start(exchange)
        except Exception as error:
            exchange.fail(error)
        else:
            if deadline is not None and not deadline.is_met:
                left_s = deadline.at_s - time.monotonic()
                exchange.expiry = self.loop.call_later(max(0.0, left_s), self._expire, exchange, deadline)

    def _expire(self, exchange: Exchange, deadline: Deadline) -> None:
        if deadline.is_met:
            return
        where = f"It ran in {exchange.replica}." if exchange.replica else self.why_waiting()
        error = TimeoutError(
            f"The call of {self.deployment_id} was cancelled: request {exchange.message.meta.request_id}, which made "
            f"it, is not answered within {deadline.limit_s:g} s (request_timeout_s). {where}"
        )
        exchange.give_up(error)

    def why_waiting(self) -> str:
        """What requests wait for. From any thread."""
        targets, what = self.targets, self.deployment_id
        if targets is None:
            return f"Nothing is known of {what}: no such deployment runs in this cluster. Deploy it with serve.run."
        if not targets.replicas:
            return f"{what} has no replica that serves: serve.status() tells what they wait for."
        if not self.borrower.replicas:
            return f"None of the {len(targets.replicas)} replicas of {what} can be reached; the caller tries again."
        return (
            f"No slot of {what} is free: its replicas run as many requests as they may, or code that blocks an event "
            "loop keeps one from answering. Add replicas, or raise max_ongoing_requests."
        )

    def submit(self, exchange: Exchange) -> None:
        """Sends a new request whose answer goes to a sink, which also takes the errors. From any thread, without
        waiting."""
        if running_loop() is self.loop:
            self.start_or_fail(exchange)
        else:
            self.loop.call_soon_threadsafe(self.start_or_fail, exchange)

    def forget(self, exchange: Exchange) -> None:
        """A request does not wait any more."""
        if self.borrower.forget(exchange):
            self._changed()

    def allow(self, exchange: Exchange, allowed: frozenset[str] | None) -> None:
        """A request that waits may go to these replicas; None for all."""
        replica = self.borrower.allow(exchange, allowed)
        if replica is not None:
            self.links[replica].begin(exchange)
            self._sent += 1
        self._changed()

    def send_elsewhere(self, exchange: Exchange) -> None:
        """A replica did not begin with a request: it is the first of those that wait."""
        if exchange.state is State.ENDED:
            exchange.ended_at_replica()
            return
        exchange.refused()
        if self._end is not None:
            exchange.fail(self._end)
        elif self.targets is not None and self.targets.state != "running":
            exchange.fail(self._unavailable(self.targets))
        elif self._is_stranded(exchange):
            exchange.fail(self._gone(exchange))
        else:
            self._ask(exchange, first=True)

    def _ask(self, exchange: Exchange, first: bool) -> None:
        allowed = exchange.allowed if exchange.allowed is not None else self._routing.allowed(exchange)
        replica = self.borrower.ask(exchange, allowed, first)
        if replica is not None:
            self.links[replica].begin(exchange)
            if self.borrower.seeks:
                self.tell_wants_soon()
        else:
            if exchange.allowed is None:
                self._routing.wait(exchange)
            self.caller.measures.changed(self)
            if self._stall is None:
                self._sent = 0
                self._stall = self.loop.call_later(STALL_S, self._look_for_stall)
            self._changed()

    def _look_for_stall(self) -> None:
        self._stall = None
        if not self.waiting:
            return
        if not self._sent:
            log.warning("%d requests wait for more than %g s. %s", self.waiting, STALL_S, self.why_waiting())
        self._sent = 0
        self._stall = self.loop.call_later(STALL_S, self._look_for_stall)

    def _queued(self) -> int:
        """How many wait without a free slot anywhere, as far as is known here."""
        assert self.targets is not None
        known = self.borrower.replicas
        coming = sum(target.slots for target in self.targets.replicas if target.replica not in known)
        return max(0, self.borrower.queued - coming)

    def _is_stranded(self, exchange: Exchange) -> bool:
        """Whether all replicas that a request is restricted to are gone."""
        allowed, targets = exchange.allowed, self.targets
        if allowed is None or targets is None:
            return False
        return not any(target.replica in allowed for target in targets.replicas)

    def _gone(self, exchange: Exchange) -> ReplicaUnavailableError:
        return ReplicaUnavailableError(", ".join(exchange.allowed or ()))

    def _unavailable(self, targets: Targets) -> DeploymentUnavailableError:
        reason = targets.message or ("it was deleted" if targets.state == "gone" else "it failed to deploy")
        return DeploymentUnavailableError(self.deployment_id, reason)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """See `Caller.spawn`."""
        self.caller.spawn(work)

    def _routing_of(self, config: bytes) -> Routing:
        if not config:
            return ByModel(self)
        from .custom_routing import CustomRouting  # few deployments have one

        try:
            return CustomRouting(self, config, self.caller.node)
        except Exception:  # its module may be missing here; without targets, requests would wait forever
            log.exception(
                "The request router of %s cannot be made in this process: requests go to any replica",
                self.deployment_id,
            )
            return ByModel(self)

    # ------------------------------------------------------------ replicas

    def published(self, value: bytes | None) -> None:
        """The controller has published other targets."""
        targets = load_targets(value) if value is not None else None
        self._is_removed = value is None
        before = self.targets
        if targets is None:
            if before is None and not self._was_deleted:
                return
            targets = Targets(before.epoch if before is not None else 0, "gone", [])
        elif before is not None and before.state != "gone" and targets.epoch < before.epoch:
            return
        self.targets = targets
        self._has_targets.set()
        if targets.router != (before.router if before is not None else b""):
            self._routing.close()
            self._routing = self._routing_of(targets.router)
        listed = {target.replica: target for target in targets.replicas}
        for replica, link in list(self.links.items()):
            if replica not in listed:
                link.retire()
        for replica, target in listed.items():
            known = self.links.get(replica)
            if known is None or known.is_over:
                link = self.links[replica] = Link(self, target, self.caller.name, self.caller.node)
                self.caller.spawn(link.run(), partial(self._ended, link))
            else:
                known.target = target  # the number of slots may have changed
                self.borrower.resize(replica, target.slots)
                if known.is_retired:
                    known.restore()
        self._routing.replicas_changed()
        if targets.state != "running":
            for exchange in self.borrower.clear():
                exchange.fail(self._unavailable(targets))
        for exchange in filter(self._is_stranded, self.borrower.requests()):
            self.borrower.forget(exchange)
            exchange.fail(self._gone(exchange))
        self._changed()
        self._drop_if_unused()

    def _drop_if_unused(self) -> None:
        if self._is_removed and not self.links and not self.is_dropped:
            self.is_dropped = True
            self._routing.close()
            self.caller.drop(self)

    def _ended(self, link: Link) -> None:
        replica = link.target.replica
        if self.links.get(replica) is link:  # else the replica is listed again, and has another one
            del self.links[replica]
        self._drop_if_unused()

    def connected(self, _link: Link) -> None:
        """A replica can be asked for slots."""
        self._routing.replicas_changed()
        self._changed()

    def lost(self, _link: Link) -> None:
        """A replica cannot be reached."""
        self._routing.replicas_changed()
        self._changed()

    def described(self, _link: Link) -> None:
        """A replica has told which models it has, or its statistics."""
        self._routing.replicas_changed()

    def live_links(self) -> list[Link]:
        """Of the replicas that take requests."""
        return [self.links[replica] for replica in self.borrower.replicas]

    def close(self, error: BaseException) -> None:
        """Fails what waits, ends the connections and takes no more requests."""
        self._end = error
        if self._stall is not None:
            self._stall.cancel()
        self._routing.close()
        for exchange in self.borrower.clear():
            exchange.fail(error)
        for link in self.links.values():
            link.close()

    # ------------------------------------------------------------ telling

    def tell_wants_soon(self) -> None:
        """Tells replicas how many slots are wanted, at the end of this turn of the loop."""
        if not self._will_tell:
            self._will_tell = True
            self.loop.call_soon(self._tell_wants)

    def served(self) -> None:
        """Waiting requests were sent."""
        self._sent += 1
        if self.targets is not None and self.targets.scales:
            self.caller.demand.changed(self)

    def _changed(self) -> None:
        self.tell_wants_soon()
        if self.targets is None or self.targets.scales:
            self.caller.demand.changed(self)

    def _tell_wants(self) -> None:
        self._will_tell = False
        for replica, waiting in self.borrower.wants():
            self.links[replica].send(Want(waiting))
