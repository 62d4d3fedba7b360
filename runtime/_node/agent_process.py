"""The life of a process that is a node agent."""

from __future__ import annotations

import asyncio
import logging
import os
import signal

from runtime._clients.control import connecting
from runtime._system import daemon_log, files, settings, stacks, variables
from runtime._system.ready import Tell
from runtime._transport.channel import CallError

from .agent import NodeAgent
from .config import AgentConfig, default_store_bytes, node_inventory
from .options import NodeOptions

log = logging.getLogger("runtime._node")
_ENDING = (signal.SIGTERM, signal.SIGINT)


def run(options: NodeOptions, tell: Tell) -> int:
    """Runs until the node should end; returns the exit status."""
    stacks.register("node agent")
    daemon_log.begin()
    try:
        variables.check(settings.OF_NODES)
        return asyncio.run(serve(NodeAgent, _config(options), tell))
    except (OSError, ValueError, CallError, RuntimeError) as error:
        log.error("ending: %s", error)
        tell({"error": str(error)})
        return 1


async def serve(make: type[NodeAgent], config: AgentConfig, tell: Tell) -> int:
    """Runs one agent from start to end, and reports when it is up."""
    agent = make(config)
    loop = asyncio.get_running_loop()
    starting = loop.create_task(agent.start())

    def end(reason: str) -> None:
        agent.finish(reason)
        starting.cancel()

    for number in _ENDING:
        loop.add_signal_handler(number, end, f"received {number.name}")
    try:
        tell(await starting)
        await agent.finished.wait()  # a node runs until something ends it
    except asyncio.CancelledError:
        if not agent.finished.is_set():
            raise
    finally:
        await agent.stop()
        for number in _ENDING:
            loop.remove_signal_handler(number)
    return 0


def _config(options: NodeOptions) -> AgentConfig:
    secret = files.read_secret(options.secret_file)
    store_bytes = options.store_bytes or default_store_bytes()
    node_id = bytes.fromhex(options.node_id) if options.node_id else os.urandom(28)
    total, labels = node_inventory(
        options.resources,
        options.labels,
        node_id=node_id,
        host=options.host,
        is_head=options.head,
        store_bytes=store_bytes,
    )
    return AgentConfig(
        node_id=node_id,
        session_dir=options.session_dir,
        host=options.host,
        total=total,
        labels=labels,
        store_bytes=store_bytes,
        secret=secret,
        control_address=options.control,
        connect_control=connecting(options.control, secret),
        is_head=options.head,
        instance_id=options.instance_id,
        node_type=options.node_type,
        exit_with_driver=options.exit_with_driver,
        remove_session_dir=options.remove_session_dir,
        control_reconnect_s=options.control_reconnect_s,
        name=options.name,
        zygote_delay_s=options.zygote_delay_s,
        sockets_dir=options.sockets_dir,
    )
