"""Where a channel is found, and where a process is."""

from __future__ import annotations

import functools

import msgspec


class Place(msgspec.Struct, frozen=True):
    """Where a process is, for the processes that open its channels.

    Attributes:
        node_id: processes with the same one share memory.
        host: its address for other nodes; "" if there are none.
        secret: what both sides of a TCP connection prove to know.
    """

    node_id: bytes
    host: str
    secret: bytes


def here() -> Place:
    """The place of this process in its cluster.

    Raises:
        RaySystemError: it is not connected to one.
    """
    from runtime._process.core_worker import (
        current,
    )  # channels also work without a cluster, in tests and benchmarks

    core = current()
    address = core.address
    return _place(address.node_id, address.host, core.session.secret)


@functools.cache
def _place(node_id: bytes, host: str, secret: bytes) -> Place:
    return Place(node_id, host, secret)


class ChannelAddress(msgspec.Struct, frozen=True):
    """Enough to open an end that reads. Small and picklable; whoever has it may read.

    Attributes:
        channel_id, token: 16 random bytes each.
        name: of the channel, for errors.
        writer: the name of the writing end.
        readers: the names of the ends that read.
        node_id: the writer's.
        socket_name: the abstract Unix socket of the writer's process.
        host, port: the writer's process for other nodes.
    """

    channel_id: bytes
    token: bytes
    name: str
    writer: str
    readers: tuple[str, ...]
    node_id: bytes
    socket_name: str
    host: str
    port: int
