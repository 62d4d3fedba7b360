"""The life of a process that is a control store."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal

from runtime._system import daemon_log, files, stacks
from runtime._system.ready import Ready, Tell
from runtime._transport.channel import StreamChannel
from runtime._transport.tcp import notice_vanished_machine, refuses, serve_tcp

from .server import ControlStore
from .storage import StorageError, open_storage

log = logging.getLogger("runtime._control")


def run(options: argparse.Namespace) -> int:
    """Runs until SIGTERM or SIGINT; returns the exit status. See `__main__` for the options."""
    stacks.register("control store")
    daemon_log.begin()
    tell = Ready(options.ready_fd).tell
    try:
        asyncio.run(_serve(options, tell))
    except (OSError, StorageError) as error:
        text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        log.error("ending: %s", text)
        tell({"error": text})
        return 1
    return 0


async def _serve(options: argparse.Namespace, tell: Tell) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    secret = files.read_secret(options.secret_file)
    store = ControlStore(
        open_storage(options.state), options.session_dir, cluster_id=options.cluster_id, refuses=refuses
    )
    try:
        await store.start()

        def accept(channel: StreamChannel) -> None:
            notice_vanished_machine(channel)
            store.attach(channel)

        server = await serve_tcp(options.host, options.port, secret, accept, "the control store")
        try:
            address = f"{options.host}:{server.port}"
            log.info("cluster %s: listening on %s", store.cluster_id, address)
            tell({"address": address, "cluster_id": store.cluster_id})
            await stop.wait()  # a control store runs until a signal ends it
            log.info("stopping")
        finally:
            server.stop()
    finally:
        await store.stop()
