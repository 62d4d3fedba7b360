"""Who is at the other end of a connection to this agent."""

from __future__ import annotations

import msgspec

from runtime._core.workers import Worker
from runtime._transport.channel import Channel
from runtime._wire.messages.base import WorkerAddress


class Process(msgspec.Struct, eq=False):
    """A registered driver or worker of this node; `worker` is None for a driver."""

    channel: Channel
    address: WorkerAddress
    job_id: bytes
    pid: int
    worker: Worker | None = None
    leaves: bool = False  # a driver said that it ends


class Peer(msgspec.Struct, eq=False):
    """The agent of another node, on a connection that it opened."""

    channel: Channel
    node_id: bytes
