"""Broadcasts to all agents: a message is encoded once for all of them, and the more agents there are, the more changes
go into one message.

One message per change on each of N nodes to each of N agents would be N x N messages, which no control store could
send. So broadcasts have a budget: changes between two rounds go out with the next one, and a round goes to a few agents
at a time, so that requests are served meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import islice

from runtime._control.cluster import Cluster, Node
from runtime._control.context import Context
from runtime._wire.messages import codec
from runtime._wire.messages.base import Message

MESSAGES_PER_S = 1000
"""Agents hear of changes within 20 ms in a cluster of 20 nodes, within a second in one of 1,000."""

BYTES_PER_S = 20 << 20
AT_ONCE = 20


def tell_all(cluster: Cluster, message: Message) -> None:
    """Sends one way to every connected agent, now."""
    payload = codec.encode(message)
    for node in cluster.living():
        if node.channel is not None:
            node.channel.send_encoded(payload)


class PacedNews:
    """Broadcasts changes to every agent, as often as the number of agents allows.

    Args:
        gather: the changes since the last time, and the node that already knows them; None if nothing changed.
    """

    def __init__(
        self, context: Context, cluster: Cluster, gather: Callable[[], tuple[Message, Node | None] | None]
    ) -> None:
        self._context = context
        self._cluster = cluster
        self._gather = gather
        self._due: asyncio.TimerHandle | None = None
        self._is_sending = False
        self._wanted = False
        self._not_before_s = 0.0

    def has_come(self, within_s: float = 0.0) -> None:
        """There is news that may wait for `within_s` seconds; 0 for the end of this loop turn."""
        if self._is_sending:
            self._wanted = True
            return
        at_s = max(self._context.now() + within_s, self._not_before_s)
        if self._due is not None:
            if self._due.when() <= at_s:
                return
            self._due.cancel()
        self._due = asyncio.get_running_loop().call_at(at_s, self._begin)

    def _begin(self) -> None:
        self._due = None
        news = None if self._context.tasks.closed else self._gather()
        if news is not None:
            message, but = news
            listeners = iter([node for node in self._cluster.living() if node is not but])
            self._send(listeners, codec.encode(message))

    def _send(self, listeners: Iterator[Node], payload: bytes) -> None:
        some = list(islice(listeners, AT_ONCE))
        for node in some:
            if node.channel is not None:
                node.channel.send_encoded(payload)
        cost_s = len(some) * max(1 / MESSAGES_PER_S, len(payload) / BYTES_PER_S)
        self._is_sending = len(some) == AT_ONCE
        if self._is_sending:
            self._context.after(cost_s, lambda: self._send(listeners, payload))
            return
        self._not_before_s = self._context.now() + cost_s
        if self._wanted:
            self._wanted = False
            self.has_come()
