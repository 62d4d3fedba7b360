"""The life of a process that is a node agent."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from typing import Any

from runtime import _stacks
from runtime._clients.control import connecting
from runtime._transport.channel import CallError

from .agent import NodeAgent
from .config import AgentConfig, default_store_bytes, node_inventory
from .options import NodeOptions
from .zygote_spawn import SpawnedZygote

log = logging.getLogger("runtime._node")


def run(options: NodeOptions, zygote: SpawnedZygote | None = None) -> int:
    """Runs until the node should end; returns the exit status.

    Args:
        zygote: the one to use; None: starts one.
    """
    _stacks.register("node agent")
    logging.basicConfig(
        level=os.environ.get("CLUSTERCTL_LOG_LEVEL", "INFO"),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    try:
        config = _config(options, zygote)
        return asyncio.run(serve(NodeAgent, config, options.ready_fd))
    except (OSError, ValueError, CallError, RuntimeError) as error:
        log.error("ending: %s", error)
        tell(options.ready_fd, {"error": str(error)})
        return 1


async def serve(make: type[NodeAgent], config: AgentConfig, ready_fd: int) -> int:
    """Runs one agent from start to end and tells `ready_fd` when it is up."""
    agent = make(config)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, agent.finish, f"received {signal.Signals(number).name}")
    try:
        tell(ready_fd, await agent.start())
        await agent.finished.wait()  # a node runs until something ends it
    finally:
        await agent.stop()
    return 0


def tell(ready_fd: int, words: dict[str, Any]) -> None:
    """Writes one JSON line to whoever started us, and closes the pipe. Once closed, it does nothing."""
    if ready_fd < 0:
        return
    try:
        with os.fdopen(ready_fd, "w") as pipe:
            pipe.write(json.dumps(words) + "\n")
    except OSError as error:
        log.warning("whoever started us does not listen: %s", error)


def _config(options: NodeOptions, zygote: SpawnedZygote | None) -> AgentConfig:
    with open(options.secret_file, "rb") as file:
        secret = file.read().strip()
    if not secret:
        raise ValueError(f"the secret file {options.secret_file} is empty")
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
        zygote=zygote,
    )
