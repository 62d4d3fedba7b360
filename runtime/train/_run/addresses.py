"""Addresses at which frameworks that connect their processes themselves listen."""

from __future__ import annotations

import socket

from runtime.train._run.session import current
from runtime.util import get_node_ip_address


def exchanged() -> tuple[int, list[str]]:
    """Chooses a free port on each rank. Every rank calls it, in the thread of the training function.

    Returns:
        This rank's port, and "host:port" of every rank.
    """
    port = _free_port()
    answers = current().exchange("join", f"{get_node_ip_address()}:{port}".encode())
    return port, [each.decode() for each in answers]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port
