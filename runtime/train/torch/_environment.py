"""Environment variables that torchrun sets for its workers, and that frameworks on top of torch read."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
from dataclasses import dataclass

_SIOCGIFADDR = 0x8915


@dataclass(frozen=True, slots=True)
class Place:
    """A worker's place among the workers of a run.

    Attributes:
        rank: among all workers.
        world_size: the number of workers.
        local_rank: among the workers of its node.
        local_world_size: the number of workers of its node.
        node_rank: of its node, among the nodes with workers.
    """

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int


def variables(place: Place, host: str, port: int, device: str) -> dict[str, str]:
    """What torchrun sets (https://pytorch.org/docs/stable/elastic/run.html#environment-variables), and Accelerate's.

    Args:
        place: of the worker.
        host: address of rank 0's node.
        port: of the store there.
        device: as torch writes it, for example "cuda:0".
    """
    return {
        "RANK": str(place.rank),
        "WORLD_SIZE": str(place.world_size),
        "LOCAL_RANK": str(place.local_rank),
        "LOCAL_WORLD_SIZE": str(place.local_world_size),
        "GROUP_RANK": str(place.node_rank),
        "NODE_RANK": str(place.node_rank),
        "MASTER_ADDR": host,
        "MASTER_PORT": str(port),
        "ACCELERATE_TORCH_DEVICE": device,  # Accelerate takes cuda:LOCAL_RANK otherwise
    }


def interface_of(host: str) -> str | None:
    """The network interface of this machine with that IPv4 address; None if there is none."""
    try:
        wanted = socket.inet_aton(host)
    except OSError:  # a name, or IPv6
        return None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # an interface without an address
                request = struct.pack("256s", name.encode()[:15])
                if fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)[20:24] == wanted:
                    return name
    return None
