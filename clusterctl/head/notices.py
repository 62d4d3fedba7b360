"""On a machine that its cloud may take back: waits for the notice, and drains the machine's node at once.

The head could not be as quick: it lists machines every few seconds, and a notice may leave no more than thirty.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path

from clusterctl.startup import notices
from clusterctl.startup.notices import Source
from runtime._transport.channel import CallError

log = logging.getLogger(__name__)
_PATIENCE_S = 30.0


def watch(source: Source, address: str, secret_file: str, node_id: bytes) -> None:
    """Waits in a thread, and drains the node then.

    Args:
        address: HOST:PORT of the head's control store.
    """

    def wait() -> None:
        goes_s = notices.wait(source)
        log.warning("%s", source.means)
        try:
            secret = Path(secret_file).read_bytes().strip()
            asyncio.run(drain(address, secret, node_id, source.means, goes_s))
        except (OSError, CallError) as error:
            log.warning("this node cannot be drained: %s", error)

    threading.Thread(target=wait, name="notices", daemon=True).start()


async def drain(address: str, secret: bytes, node_id: bytes, reason: str, goes_s: float) -> None:
    """Takes a node out of service: it gets no new work.

    Args:
        goes_s: when its machine goes, in Unix time.

    Raises:
        CallError: the control store refuses, or does not answer.
    """
    from runtime._clients.control import ControlClient
    from runtime._wire.messages.control import DrainNode

    control = ControlClient.over_tcp(address, secret, reconnect_timeout_s=_PATIENCE_S)
    try:
        await control.start(_PATIENCE_S)
        message = DrainNode(node_id, reason, only_if_idle=False, deadline_ms=int(goes_s * 1000))
        await control.call(message, _PATIENCE_S)
    finally:
        await control.close()
