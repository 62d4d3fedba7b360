"""`python -m runtime._session.local_node`: a cluster of one node in one process, for one driver.

Control store and agent are the real ones, joined by an in-process channel: gRPC is never loaded.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import shutil
import sys

from runtime._control.server import ControlStore
from runtime._control.storage import open_storage
from runtime._node.__main__ import serve, tell
from runtime._node.agent import NodeAgent
from runtime._node.config import AgentConfig, default_store_bytes, node_resources
from runtime._transport.channel import CallError, Channel, Handler, LoopbackChannel

log = logging.getLogger("runtime._session.local_node")


def main(argv: list[str] | None = None) -> int:
    """Runs until the driver has left; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m runtime._session.local_node", description=__doc__)
    parser.add_argument("--session-dir", required=True, help="private directory of this session")
    parser.add_argument("--resources", default="{}", help="JSON of amounts; CPU and memory have defaults")
    parser.add_argument("--labels", default="{}", help="JSON of node labels")
    parser.add_argument("--store-bytes", type=int, default=0, help="shared memory for objects; 0: a default")
    parser.add_argument("--ready-fd", type=int, default=-1, help="where to write one JSON line when up")
    parser.add_argument("--keep-logs", action="store_true", help="leave the session directory behind")
    options = parser.parse_args(argv)
    logging.basicConfig(
        level=os.environ.get("CLUSTERCTL_LOG_LEVEL", "INFO"),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    try:
        return asyncio.run(_serve(options))
    except (OSError, ValueError, CallError, RuntimeError) as error:
        log.error("ending: %s", error)
        tell(options.ready_fd, {"error": str(error)})
        if not options.keep_logs:
            shutil.rmtree(options.session_dir, ignore_errors=True)
        return 1


async def _serve(options: argparse.Namespace) -> int:
    control = ControlStore(open_storage(":memory:"), options.session_dir)

    async def connect(handler: Handler) -> Channel:
        ours, theirs = LoopbackChannel.pair(handler, None)
        control.attach(theirs)
        return ours

    store_bytes = options.store_bytes or default_store_bytes()
    config = AgentConfig(
        node_id=os.urandom(28),
        session_dir=options.session_dir,
        host="127.0.0.1",
        total=node_resources(json.loads(options.resources), store_bytes),
        labels=json.loads(options.labels),
        store_bytes=store_bytes,
        secret=os.urandom(32),
        control_address="",
        connect_control=connect,
        is_head=True,
        listen_tcp=False,
        exit_with_driver=True,
        remove_session_dir=not options.keep_logs,
        local=True,
    )
    await control.start()
    try:
        return await serve(NodeAgent, config, options.ready_fd)
    finally:
        await control.stop()


if __name__ == "__main__":
    sys.exit(main())
