"""`python -m runtime._node`: a node agent as a process of its own, joined to a control store over TCP."""

from __future__ import annotations

import argparse
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
from .zygote_spawn import SpawnedZygote

log = logging.getLogger("runtime._node")


def main(argv: list[str] | None = None, zygote: SpawnedZygote | None = None) -> int:
    """Runs until the node should end; returns the exit status.

    Args:
        zygote: the one to use; None: starts one.
    """
    options = _parser().parse_args(argv)
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


def _config(options: argparse.Namespace, zygote: SpawnedZygote | None) -> AgentConfig:
    with open(options.secret_file, "rb") as file:
        secret = file.read().strip()
    if not secret:
        raise ValueError(f"the secret file {options.secret_file} is empty")
    store_bytes = options.store_bytes or default_store_bytes()
    control: str = options.control
    connect = connecting(control, secret)
    node_id = bytes.fromhex(options.node_id) if options.node_id else os.urandom(28)
    total, labels = node_inventory(
        json.loads(options.resources),
        json.loads(options.labels),
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
        control_address=control,
        connect_control=connect,
        is_head=options.head,
        instance_id=options.instance_id,
        node_type=options.node_type,
        exit_with_driver=options.exit_with_driver,
        remove_session_dir=options.remove_session_dir,
        control_reconnect_s=options.control_reconnect_s,
        name=options.name,
        zygote=zygote,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m runtime._node", description=__doc__)
    parser.add_argument("--control", required=True, help="host:port of the control store")
    parser.add_argument("--session-dir", required=True, help="private directory of this node")
    parser.add_argument("--host", default="127.0.0.1", help="address under which other nodes reach this one")
    parser.add_argument("--resources", default="{}", help="JSON of amounts; CPU and memory have defaults")
    parser.add_argument("--labels", default="{}", help="JSON of node labels")
    parser.add_argument("--store-bytes", type=int, default=0, help="shared memory for objects; 0: a default")
    parser.add_argument("--secret-file", required=True, help="file that holds the cluster's secret")
    parser.add_argument("--ready-fd", type=int, default=-1, help="where to write one JSON line when up")
    parser.add_argument("--head", action="store_true", help="this node is the cluster's head")
    parser.add_argument("--instance-id", default="", help="the autoscaler's name of this machine")
    parser.add_argument("--node-type", default="", help="the node type of the cluster's specification")
    parser.add_argument("--node-id", default="", help="hex; default: random")
    parser.add_argument("--name", default="", help="what users call this node; default: its host")
    parser.add_argument("--exit-with-driver", action="store_true", help="end when the driver has left")
    parser.add_argument("--remove-session-dir", action="store_true", help="leave no logs either")
    parser.add_argument(
        "--control-reconnect-s", type=float, default=7.0, help="end after so long without a control store"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
