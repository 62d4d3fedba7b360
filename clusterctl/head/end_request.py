"""`python -m clusterctl.head.end_request`: asks the head from any node to end the cluster. `clusterctl exec --tmux
--stop` runs it after its command.

The request goes through the control store, because the head's API listens on the loopback of the head's machine only.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

import msgspec

from clusterctl import settings
from clusterctl.startup.record import FILE, DaemonRecord
from runtime._clients.control import ControlClient
from runtime._transport.channel import CallError
from runtime._wire.messages.control import KvDelete, KvGet, KvPut

_NAMESPACE = "head"
_KEY = b"end_cluster"
_PATIENCE_S = 600.0
_ANSWER_S = 10.0


def main() -> int:
    """Asks the head; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m clusterctl.head.end_request", description=__doc__)
    parser.add_argument("--down", action="store_true", help="for good")
    options = parser.parse_args()
    try:
        session = Path(settings.SESSION_DIR.get())
        record = msgspec.json.decode((session / FILE).read_bytes(), type=DaemonRecord)
        secret = Path(record.secret_file).read_bytes().strip()
        asyncio.run(_ask(record.control_address, secret, options.down))
    except (OSError, ValueError, CallError) as error:
        print(f"the cluster cannot be ended from here: {error}; run: clusterctl down", file=sys.stderr)
        return 1
    return 0


async def taken(control: ControlClient) -> bool | None:
    """Takes the request that is there: True to end the cluster for good, False to stop it, None without one.

    Raises:
        CallError: the control store does not answer.
    """
    value = (await control.call(KvGet(_NAMESPACE, _KEY), _ANSWER_S)).value
    if value is None:
        return None
    await control.call(KvDelete(_NAMESPACE, _KEY), _ANSWER_S)
    return value == b"down"


async def _ask(address: str, secret: bytes, down: bool) -> None:
    """Leaves the request. Retries for ten minutes: without it the machines would cost on."""
    control = ControlClient.over_tcp(address, secret, reconnect_timeout_s=_PATIENCE_S)
    try:
        await control.start(_PATIENCE_S)
        await control.call(KvPut(_NAMESPACE, _KEY, b"down" if down else b"stop"), _PATIENCE_S)
    finally:
        await control.close()


if __name__ == "__main__":
    sys.exit(main())
