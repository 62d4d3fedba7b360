"""The ingress of each node that should have one."""

from __future__ import annotations

import pickle
from collections.abc import Collection
from enum import Enum
from typing import Any, Final

from runtime._controllers.controller import (
    ActorDied,
    ActorLost,
    ActorUp,
    Call,
    Done,
    Effect,
    Failed,
    Forget,
    Kill,
    Restart,
    Sleep,
    Wait,
)
from runtime._core.fsm import Edge, Machine, Transitions
from runtime.serve._core.effects import Adopt, CreateDetached, Put
from runtime.serve._core.states import ProxyStatus
from runtime.serve._core.world import World
from runtime.serve.config import ProxyLocation

CHECK_S = 10.0
CHECK_TIMEOUT_S = 10.0
FAILED_CHECKS = 3
UNNEEDED_S = 30.0
"""How long the ingress of a node without replicas is kept."""
DRAIN_S = 30.0
LONGEST_RETRY_S = 60.0

S, H, X, D, G = (
    ProxyStatus.STARTING,
    ProxyStatus.HEALTHY,
    ProxyStatus.UNHEALTHY,
    ProxyStatus.DRAINING,
    ProxyStatus.DRAINED,
)


class IngressInput(Enum):
    READY = "it listens"
    FAILED = "it does not listen, or does not answer"
    LOST = "its process ended"
    DRAIN = "its node needs none"
    DIED = "it is gone"


I = IngressInput  # noqa: E741
TRANSITIONS: Final[Transitions[ProxyStatus, IngressInput]] = {
    (S, I.READY): Edge(H, "it listens"),
    (H, I.READY): Edge(H, "it still answers"),
    (X, I.READY): Edge(H, "it listens again"),
    (S, I.FAILED): Edge(X, "it cannot listen"),
    (H, I.FAILED): Edge(X, "it does not answer health checks"),
    (X, I.FAILED): Edge(X, "it still cannot listen"),
    **{(state, I.LOST): Edge(S, "its process ended and is started again") for state in (S, H, X)},
    (D, I.LOST): Edge(D, "its process ended while it drained"),
    **{(state, I.DRAIN): Edge(D, "no replica is left on its node") for state in (S, H, X)},
    **{(state, I.DIED): Edge(G, "it has ended") for state in (S, H, X, D)},
}


class Ingress:
    """Of one node. `listens`: what its `start` returned. `told`, `known`: versions of the routes."""

    def __init__(self, node: str, now: float) -> None:
        self.node = node
        self.machine: Machine[ProxyStatus, IngressInput] = Machine(f"ingress of {node}", S, TRANSITIONS)
        self.since_s = now
        self.listens: dict[str, Any] = {}
        self.message = ""
        self.failures = 0
        self.unneeded_s: float | None = None
        self.number = 0  # of its last call
        self.told = self.known = 0

    @property
    def key(self) -> tuple[str, str]:
        return ("ingress", self.node)

    @property
    def actor_name(self) -> str:
        """As with Ray."""
        return f"SERVE_PROXY_ACTOR-{self.node}"

    @property
    def status(self) -> ProxyStatus:
        return self.machine.state

    def step(self, event: IngressInput, now: float) -> None:
        """See `Machine.step`."""
        self.machine.step(event, now)
        self.since_s = now


class Ingresses:
    """All of them.

    Attributes:
        options: of HTTP and gRPC, and where they are to be; None: serving has not been started.
    """

    def __init__(self, world: World) -> None:
        self.options: tuple[dict[str, Any], dict[str, Any], str] | None = None
        self.by_node: dict[str, Ingress] = {}
        self.is_leaving = False
        self.epoch = 0
        self._routes = b""
        self._world = world
        self._numbers: dict[str, int] = {}  # of the last calls of those that died: answers may still come

    def configure(self, http: dict[str, Any], grpc: dict[str, Any], location: str) -> list[Effect]:
        """The first options count until everything is shut down."""
        if self.options is not None:
            return []
        self.options = (http, grpc, location)
        return [Put(b"options", pickle.dumps(self.options))]

    def publish(self, epoch: int, routes: bytes) -> None:
        """Other routes. Ingresses follow them in the control store; that they are told, too, is for those who wait."""
        self.epoch, self._routes = epoch, routes

    @property
    def know_routes(self) -> bool:
        """Whether all ingresses that listen have the latest routes."""
        return all(each.known >= self.epoch for each in self.by_node.values() if each.status is H)

    def routes_known(self, node: str, epoch: int) -> None:
        """An ingress has routes of that version, or is gone."""
        ingress = self.by_node.get(node)
        if ingress is not None:
            ingress.known = max(ingress.known, epoch)

    def _tell_routes(self, ingress: Ingress) -> list[Effect]:
        if ingress.status is not H or ingress.told >= self.epoch:
            return []
        ingress.told = self.epoch
        return [Call(("routes", ingress.node, self.epoch), ingress.key, "update_routes", [self._routes])]

    def recover(self, node: str, listens: dict[str, Any], now: float) -> list[Effect]:
        """An ingress from before the controller was restarted."""
        ingress = self.by_node[node] = Ingress(node, now)
        ingress.listens = listens
        # One without an address may never have been told to listen.
        call = self._call(ingress, "check_health") if listens else self._start(ingress)
        return [Adopt(ingress.key, ingress.actor_name), *call]

    @property
    def is_ready(self) -> bool:
        """Whether clients of the head node can connect, as far as they are to."""
        if self.options is None or self.options[2] == ProxyLocation.Disabled.value:
            return True
        head = self._world.head
        ingress = self.by_node.get(head) if head is not None else None
        return ingress is not None and ingress.status is H

    @property
    def failure(self) -> str:
        """Why the ingress of the head node cannot listen."""
        head = self._world.head
        ingress = self.by_node.get(head) if head is not None else None
        return ingress.message if ingress is not None and ingress.status is X else ""

    def reconcile(self, with_replicas: Collection[str], now: float) -> list[Effect]:
        """Starts and drains what should be.

        Args:
            with_replicas: nodes that have replicas.
        """
        wanted = self._wanted(with_replicas)
        effects: list[Effect] = []
        for node in sorted(wanted - set(self.by_node)):
            effects += self._create(node, now)
        for ingress in list(self.by_node.values()):
            effects += self._tell_routes(ingress)
            if ingress.node in wanted:
                ingress.unneeded_s = None
            elif self.is_leaving:
                if ingress.status is not D:
                    ingress.step(I.DRAIN, now)
                    effects.append(Kill(ingress.key))
            elif ingress.unneeded_s is None and ingress.status is not D:
                ingress.unneeded_s = now
                effects.append(Sleep(("unneeded", ingress.node), UNNEEDED_S))
        return effects

    def unneeded(self, node: str, now: float) -> list[Effect]:
        """A node has had no replicas for a while, unless it has some again."""
        ingress = self.by_node.get(node)
        if ingress is None or ingress.unneeded_s is None or ingress.status is D:
            return []
        ingress.step(I.DRAIN, now)
        return [*self._call(ingress, "drain", DRAIN_S), Sleep(("ingress stop", node), DRAIN_S + 5.0)]

    def _wanted(self, with_replicas: Collection[str]) -> set[str]:
        if self.options is None or self.is_leaving or self.options[2] == ProxyLocation.Disabled.value:
            return set()
        head = self._world.head
        nodes = {head} if head is not None else set()
        if self.options[2] == ProxyLocation.EveryNode.value:
            nodes |= {node for node in with_replicas if node in self._world.nodes}
        return nodes - self._world.draining

    def _create(self, node: str, now: float) -> list[Effect]:
        ingress = self.by_node[node] = Ingress(node, now)
        ingress.number = self._numbers.pop(node, 0)
        return [
            Put(_key(node), pickle.dumps({})),
            CreateDetached(
                ingress.key,
                ingress.actor_name,
                self._world.ingress_class,
                [node, {"host": self._world.nodes[node].host}],
                {"num_cpus": 0, "max_restarts": -1},
                node,
            ),
            *self._start(ingress),
        ]

    def _start(self, ingress: Ingress) -> list[Effect]:
        assert self.options is not None
        http, grpc, _ = self.options
        return self._call(ingress, "start", http, grpc, fetch=True)

    def _call(self, ingress: Ingress, method: str, *args: Any, fetch: bool = False) -> list[Effect]:
        ingress.number += 1
        key = ("ingress", ingress.node, ingress.number, method)
        effects: list[Effect] = [Call(key, ingress.key, method, list(args), fetch=fetch)]
        if method == "check_health":
            effects.append(Sleep(("ingress late", ingress.node), CHECK_TIMEOUT_S))
        return effects

    # ------------------------------------------------------------ what happens to them

    def done(self, event: Done, now: float) -> list[Effect]:
        """A call of an ingress has ended."""
        key: Any = event.key
        _, node, number, method = key
        forget: list[Effect] = [Forget(event.key)]
        ingress = self.by_node.get(node)
        if ingress is None:
            return forget
        if method == "drain":
            return [*forget, Kill(ingress.key)]
        if number != ingress.number or ingress.status is D:
            return forget
        if method == "start":
            ingress.listens = event.value
            forget.append(Put(_key(node), pickle.dumps(event.value)))
        return forget + self._answered(ingress, now)

    def failed(self, event: Failed, now: float) -> list[Effect]:
        """A call of an ingress has failed."""
        key: Any = event.key
        _, node, number, method = key
        ingress = self.by_node.get(node)
        if ingress is None:
            return []
        if method == "drain":
            return [Kill(ingress.key)]
        if number != ingress.number or ingress.status is D:
            return []
        if method == "check_health":
            return self._check_failed(ingress, str(event.error), now)
        ingress.failures += 1
        ingress.message = f"The ingress of node {node} does not start: {event.error}"
        ingress.step(I.FAILED, now)
        return [Sleep(("ingress retry", node), min(LONGEST_RETRY_S, 2.0 ** min(ingress.failures - 1, 10)))]

    def timer(self, kind: str, node: str, now: float) -> list[Effect]:
        """One of its times is over."""
        ingress = self.by_node.get(node)
        if ingress is None:
            return []
        if kind == "ingress stop":
            return [Kill(ingress.key)]
        if ingress.status is D:
            return []
        if kind == "ingress retry":
            return self._start(ingress)
        if kind == "ingress check":
            return self._call(ingress, "check_health")
        ingress.number += 1  # the answer of the check does not count any more
        return self._check_failed(ingress, f"no answer within {CHECK_TIMEOUT_S:g} s", now)

    def up(self, event: ActorUp, now: float) -> list[Effect]:
        """The process of an ingress runs, for the first time or again."""
        ingress = self.by_node.get(event.key[1])  # type: ignore[index]
        if ingress is None or ingress.status is D or not event.restarts or ingress.status is not S:
            return []
        return self._start(ingress)

    def lost(self, event: ActorLost, now: float) -> list[Effect]:
        """The process of an ingress has ended, and is started again."""
        ingress = self.by_node.get(event.key[1])  # type: ignore[index]
        if ingress is None:
            return []
        ingress.number += 1
        ingress.told = ingress.known = 0
        ingress.message = f"The process of the ingress ended: {event.reason}"
        ingress.step(I.LOST, now)
        # A check in between would make the answer of the next `start` count for nothing.
        timers = ("ingress retry", "ingress check", "ingress late")
        return [Sleep((kind, ingress.node), -1) for kind in timers]

    def died(self, event: ActorDied, now: float) -> list[Effect]:
        """An ingress is gone. It is created again where it is needed."""
        ingress = self.by_node.pop(event.key[1], None)  # type: ignore[index]
        if ingress is None:
            return []
        ingress.step(I.DIED, now)
        self._numbers[ingress.node] = ingress.number
        timers = ("ingress retry", "ingress check", "ingress late", "ingress stop", "unneeded")
        return [Put(_key(ingress.node), None), *(Sleep((kind, ingress.node), -1) for kind in timers)]

    def _answered(self, ingress: Ingress, now: float) -> list[Effect]:
        ingress.failures = 0
        ingress.message = ""
        ingress.step(I.READY, now)
        return [Sleep(("ingress late", ingress.node), -1), Sleep(("ingress check", ingress.node), CHECK_S)]

    def _check_failed(self, ingress: Ingress, reason: str, now: float) -> list[Effect]:
        ingress.failures += 1
        effects: list[Effect] = [
            Sleep(("ingress late", ingress.node), -1),
            Sleep(("ingress check", ingress.node), CHECK_S),
        ]
        if ingress.failures >= FAILED_CHECKS:
            ingress.message = f"The ingress of node {ingress.node} failed its health checks: {reason}"
            ingress.failures = 0
            ingress.step(I.FAILED, now)
            effects.append(Restart(ingress.key))
        return effects

    def waiting_for(self) -> list[Wait]:
        """See `Controller.waiting_for`."""
        return [
            Wait(each.key, f"the ingress of node {each.node} ({each.status.value})", each.since_s)
            for each in self.by_node.values()
            if each.status in (S, D)
        ]


def _key(node: str) -> bytes:
    return f"proxy\0{node}".encode()
