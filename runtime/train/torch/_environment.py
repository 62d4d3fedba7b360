"""Environment variables that torchrun sets for its workers, and that frameworks on top of torch read."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct

from runtime.train._run.backend import WorkerContext

_SIOCGIFADDR = 0x8915


def variables(context: WorkerContext, host: str, port: int, device: str) -> dict[str, str]:
    """What torchrun sets (https://pytorch.org/docs/stable/elastic/run.html#environment-variables), and Accelerate's.

    Args:
        context: the worker's place.
        host: address of rank 0's node.
        port: of the store there.
        device: as torch writes it, for example "cuda:0".
    """
    return {
        "RANK": str(context.get_world_rank()),
        "WORLD_SIZE": str(context.get_world_size()),
        "LOCAL_RANK": str(context.get_local_rank()),
        "LOCAL_WORLD_SIZE": str(context.get_local_world_size()),
        "GROUP_RANK": str(context.get_node_rank()),
        "NODE_RANK": str(context.get_node_rank()),
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
