"""Leases that processes of this node have, or ask for, on other nodes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

import msgspec

from runtime._core.lease_queue import LeaseQueue, NodeTable, Waiting
from runtime._transport.channel import CallError, Channel
from runtime._wire.messages.base import ErrorKind, ResourceRequest
from runtime._wire.messages.node import (
    LeaseGranted,
    LeaseLost,
    LeaseRecall,
    LeaseReturn,
    RemoteLease,
    RemoteLeaseGranted,
    RemoteLeaseLost,
    RemoteLeaseReturn,
)

from .peers import PeerTable
from .processes import Process

log = logging.getLogger(__name__)
BUSY_PAUSE_S = 0.1
CAPPED_PAUSE_S = 0.5
_PAUSES_S = {ErrorKind.BUSY: BUSY_PAUSE_S, ErrorKind.CAPPED: CAPPED_PAUSE_S}
"""How long a node that refused gets no further request."""


class RemoteLeaseHere(msgspec.Struct, eq=False):
    """A worker of another node in the hands of a process of this node, or on its way there."""

    lease_id: bytes
    node_id: bytes
    owner: Channel
    resources: Mapping[str, int]  # as they were requested
    worker_id: bytes = b""  # known once the lease is granted
    early: list[LeaseRecall | RemoteLeaseLost] = msgspec.field(
        default_factory=list
    )  # came before the owner knew it


class RemoteLeases:
    """Asks the agents of other nodes for leases and passes on what they say about them.

    A lease is named by the asking agent and recorded before the request goes out, so a message about it never arrives
    too early. It ends with the connection between the two agents, on both sides.

    Args:
        queue: learns how each request ended.
        table: the free resources of other nodes as this agent knows them.
        new_lease_id: makes an id that no other lease has.
        kick: something changed that the queue should look at.
        refuse: a demand can never be met: kind and message of the error.
    """

    def __init__(
        self,
        queue: LeaseQueue,
        table: NodeTable,
        peers: PeerTable,
        new_lease_id: Callable[[], bytes],
        kick: Callable[[], None],
        refuse: Callable[[Waiting, str, str], None],
    ) -> None:
        self._queue = queue
        self._table = table
        self._peers = peers
        self._new_lease_id = new_lease_id
        self._kick = kick
        self._refuse = refuse
        self._leases: dict[bytes, RemoteLeaseHere] = {}
        self._asking: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        """Stops asking."""
        for task in self._asking:
            task.cancel()

    def ask(self, entry: Waiting, node_id: bytes) -> None:
        """Asks a node for one lease for this demand."""
        task = asyncio.get_running_loop().create_task(self._ask(entry, node_id))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    def give_back(self, owner: Channel, message: LeaseReturn) -> None:
        """The owner is done with a lease. An unknown one ended before."""
        lease = self._leases.get(message.lease_id)
        if lease is not None and lease.owner is owner:
            self._forget(lease)
            self._send_back(lease, message.discard)
            self._kick()

    def owner_gone(self, owner: Channel) -> None:
        """The process is no more: what it leased dies. What is still being granted goes back when it comes."""
        for lease in list(self._leases.values()):
            if lease.owner is owner and lease.worker_id:
                self._forget(lease)
                self._send_back(lease, True)

    def lost(self, message: RemoteLeaseLost) -> None:
        """The other agent says that the worker behind a lease died."""
        lease = self._leases.get(message.lease_id)
        if lease is None:
            return
        if not lease.worker_id:
            lease.early.append(message)
            return
        self._forget(lease)
        lease.owner.send(
            LeaseLost(
                message.lease_id,
                message.worker_id,
                message.reason,
                out_of_memory=message.out_of_memory,
                retry=message.retry,
            )
        )

    def recalled(self, message: LeaseRecall) -> None:
        """The other agent wants a worker back."""
        lease = self._leases.get(message.lease_id)
        if lease is None:
            return
        if lease.worker_id:
            lease.owner.send(message)
        else:
            lease.early.append(message)

    def node_lost(self, node_id: bytes, reason: str) -> None:
        """A node died, or our connection to its agent broke, which ends our leases there."""
        for lease in list(self._leases.values()):
            if lease.node_id == node_id and lease.worker_id:
                self._forget(lease)
                lease.owner.send(LeaseLost(lease.lease_id, lease.worker_id, reason, node_died=True))
        self._kick()

    async def _ask(self, entry: Waiting, node_id: bytes) -> None:
        channel = entry.owner
        assert isinstance(channel, Channel)
        lease = RemoteLeaseHere(self._new_lease_id(), node_id, channel, entry.request.resources)
        self._leases[lease.lease_id] = lease
        try:
            granted = await self._request(entry, lease)
        except CallError as error:
            del self._leases[lease.lease_id]
            self._failed(entry, node_id, error)
            return
        wanted = self._queue.grant_ended(entry, True)
        if not wanted or channel.closed:
            self._forget(lease)
            self._send_back(lease, False)
            self._kick()
            return
        lease.worker_id = granted.worker.worker_id
        channel.send(
            LeaseGranted(
                entry.class_key,
                lease.lease_id,
                granted.worker,
                granted.resources,
                granted.gpu_ids,
                granted.other_ids,
            )
        )
        for message in lease.early:
            if isinstance(message, LeaseRecall):
                self.recalled(message)
            else:
                self.lost(message)

    async def _request(self, entry: Waiting, lease: RemoteLeaseHere) -> RemoteLeaseGranted:
        process: Process = lease.owner.context
        request = msgspec.msgpack.decode(entry.shape, type=ResourceRequest)
        peer = await self._peers.channel(lease.node_id)
        # No deadline: the environment there may take any time to build. The wait ends with the connection.
        granted = await peer.call(
            RemoteLease(
                process.address,
                entry.job_id,
                request,
                entry.runtime_env,
                entry.retriable,
                lease.lease_id,
                *entry.scheduling_class,
            ),
            timeout_s=None,
        )
        if peer.closed:  # since the answer came: the other agent has ended the lease
            raise CallError(ErrorKind.UNAVAILABLE, f"the connection to {peer.name} closed")
        return granted

    def _failed(self, entry: Waiting, node_id: bytes, error: CallError) -> None:
        loop = asyncio.get_running_loop()
        self._queue.grant_ended(entry, False)
        pause = _PAUSES_S.get(error.kind, 10 * BUSY_PAUSE_S)
        which = entry.scheduling_class if error.kind == ErrorKind.CAPPED else None
        self._table.refused(node_id, entry.request.resources, loop.time() + pause, which)
        if error.kind in (ErrorKind.RUNTIME_ENV, ErrorKind.SETUP_HOOK):
            self._refuse(entry, error.kind, error.message)
        elif error.kind not in _PAUSES_S:
            log.warning("node %s gave no lease: %s", node_id.hex()[:12], error)
        loop.call_later(pause + 0.001, self._kick)
        self._kick()

    def _forget(self, lease: RemoteLeaseHere) -> None:
        del self._leases[lease.lease_id]
        self._table.restore(lease.node_id, lease.resources)

    def _send_back(self, lease: RemoteLeaseHere, discard: bool) -> None:
        channel = self._peers.open_channel(lease.node_id)
        if channel is not None:
            channel.send(RemoteLeaseReturn(lease.lease_id, discard))
