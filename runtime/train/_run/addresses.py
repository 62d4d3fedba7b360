"""Addresses at which frameworks that connect their processes themselves listen.

The port is chosen here, and bound by the framework later: TensorFlow's server and LightGBM's network start in the
user's training function, where nothing can choose another port and tell all ranks. They cannot take over a socket
either, and LightGBM does not even bind a port that a socket with SO_REUSEADDR or SO_REUSEPORT holds (tried with 4.7).
So a `Port` is one that nobody else takes meanwhile: it lies outside the range from which the system gives ports to
connections and to servers that ask for any, and ranks of other runs on the machine see that it is taken.
"""

from __future__ import annotations

import pathlib
import random
import socket
from collections.abc import Sequence

from runtime.train._run.session import current
from runtime.util import get_node_ip_address

ATTEMPTS = 1000
_RANGE = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST, _HIGHEST = 10_000, 65_535


class Port:
    """A free TCP port of this machine, reserved until `release` or the end of the process.

    Attributes:
        number: of the port.

    Raises:
        OSError: no port is free.
    """

    def __init__(self) -> None:
        candidates = outside(_given_by_the_system())
        for _ in range(ATTEMPTS):
            self.number = random.choice(candidates)
            # A name in the abstract namespace, which belongs to the network namespace as ports do, is free again when
            # the process ends.
            self._reservation = socket.socket(socket.AF_UNIX)
            try:
                self._reservation.bind(f"\0train-port-{self.number}")
                with socket.socket() as probe:
                    probe.bind(("", self.number))
                return
            except OSError:
                self._reservation.close()
        raise OSError(f"No TCP port of {ATTEMPTS} that were tried is free on {get_node_ip_address()}.")

    def release(self) -> None:
        """Others may take it."""
        self._reservation.close()


def exchanged(port: Port) -> list[str]:
    """Tells all ranks where this one listens. Every rank calls it, in the thread of the training function.

    Returns:
        "host:port" of every rank.
    """
    answers = current().exchange("join", f"{get_node_ip_address()}:{port.number}".encode())
    return [each.decode() for each in answers]


def outside(given: tuple[int, int]) -> Sequence[int]:
    """The ports that can be chosen.

    Args:
        given: the first and the last that the system gives to whoever asks for any.
    """
    first, last = given
    return [*range(_LOWEST, first), *range(last + 1, _HIGHEST + 1)] or range(first, last + 1)


def _given_by_the_system() -> tuple[int, int]:
    try:
        first, last = _RANGE.read_text().split()
        return int(first), int(last)
    except (OSError, ValueError):
        return 32_768, 60_999  # Linux's default
