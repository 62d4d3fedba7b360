"""Ports that `attach`, `exec` and `dashboard` forward."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from clusterctl import output
from clusterctl.errors import CliError, UsageProblem

if TYPE_CHECKING:
    from autoscaler.provider import Shell

_HIGHEST = 65535


def parse(text: str) -> tuple[int, int]:
    """The local port and the node's of PORT or HERE:THERE.

    Raises:
        UsageProblem: it is neither.
    """
    here, colon, there = text.partition(":")
    ports = [int(part) if part.isdecimal() else 0 for part in ((here, there) if colon else (here, here))]
    if not all(0 < port <= _HIGHEST for port in ports):
        raise UsageProblem(f"--port-forward takes PORT or HERE:THERE, e.g. 8265 or 9000:8265, not '{text}'")
    return ports[0], ports[1]


@contextlib.contextmanager
def forwarding(shell: Shell, wanted: Sequence[str]) -> Iterator[None]:
    """While it lasts, local ports lead to those of a node.

    Raises:
        UsageProblem: one is written wrongly.
        CliError: one is in use here.
    """
    pairs = [parse(text) for text in wanted]
    with contextlib.ExitStack() as stack:
        for here, there in pairs:
            stack.enter_context(forward(shell, there, here))
            output.progress(f"127.0.0.1:{here} leads to port {there} of the node")
        yield


@contextlib.contextmanager
def forward(shell: Shell, port: int, at: int) -> Iterator[int]:
    """A local port (`at`; 0: any) that leads to one of a node.

    Raises:
        CliError: it is in use here.
    """
    from clusterctl.shell.forwarding import forwarded_at

    def tell(failure: Exception | None) -> None:
        if failure is not None:
            output.warn(f"a connection to port {port} got no tunnel: {failure}")

    with contextlib.ExitStack() as stack:
        try:
            here = stack.enter_context(forwarded_at(shell, port, at, tell))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise CliError(
                    f"port {at} of this machine is in use", f"Choose another one, e.g. {at + 1}:{port}."
                ) from error
            raise CliError(f"port {at} of this machine cannot be used: {error.strerror}") from error
        yield here
