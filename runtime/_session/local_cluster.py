"""Control store and node agent in one process, for one driver."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import shutil

from runtime._control.server import ControlStore
from runtime._control.storage import open_storage
from runtime._node.agent import NodeAgent
from runtime._node.agent_process import serve
from runtime._node.child import end_session
from runtime._node.config import AgentConfig, default_store_bytes, node_inventory
from runtime._node.zygote_spawn import SpawnedZygote
from runtime._system import daemon_log, settings, variables
from runtime._system.ready import Ready, Tell
from runtime._transport.channel import CallError, Channel, Handler, LoopbackChannel

log = logging.getLogger("runtime._session.local_cluster")


def run(options: argparse.Namespace, zygote: SpawnedZygote) -> int:
    """Runs until the driver has left; returns the exit status. See `local_node` for the options."""
    daemon_log.begin()
    tell = Ready(options.ready_fd).tell
    try:
        variables.check(settings.OF_NODES)
        return asyncio.run(_serve(options, zygote, tell))
    except (OSError, ValueError, CallError, RuntimeError) as error:
        log.error("ending: %s", error)
        tell({"error": str(error)})
        end_session(zygote.process)
        if not options.keep_logs:
            shutil.rmtree(options.session_dir, ignore_errors=True)
        return 1


async def _serve(options: argparse.Namespace, zygote: SpawnedZygote, tell: Tell) -> int:
    control = ControlStore(open_storage(":memory:"), options.session_dir)

    async def connect(handler: Handler) -> Channel:
        ours, theirs = LoopbackChannel.pair(handler, None)
        control.attach(theirs)
        return ours

    store_bytes = options.store_bytes or default_store_bytes()
    node_id = os.urandom(28)
    total, labels = node_inventory(
        json.loads(options.resources),
        json.loads(options.labels),
        node_id=node_id,
        host=options.host,
        is_head=True,
        store_bytes=store_bytes,
    )
    config = AgentConfig(
        node_id=node_id,
        session_dir=options.session_dir,
        host=options.host,
        total=total,
        labels=labels,
        store_bytes=store_bytes,
        secret=os.urandom(32),
        control_address="",
        connect_control=connect,
        is_head=True,
        listen_tcp=False,
        exit_with_driver=True,
        remove_session_dir=not options.keep_logs,
        local=True,
        zygote=zygote,
        name=options.name,
        workers_group=options.workers_group,
    )
    await control.start()
    try:
        return await serve(NodeAgent, config, tell)
    finally:
        await control.stop()
