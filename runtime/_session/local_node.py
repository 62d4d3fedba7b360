"""`python -m runtime._session.local_node`: a cluster of one node in one process, for one driver.

Control store and agent are the real ones (`local_cluster`), joined by an in-process channel. This module only
reads the command line and starts the zygote, which then comes up while everything else is imported.
"""

from __future__ import annotations

import argparse
import logging
import os

from runtime._node.zygote_spawn import spawn_zygote
from runtime._system import interpreter, stacks


def main(argv: list[str] | None = None) -> int:
    """Runs until the driver has left; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m runtime._session.local_node", description=__doc__)
    parser.add_argument("--session-dir", required=True, help="private directory of this session")
    parser.add_argument("--resources", default="{}", help="JSON of amounts; CPU and memory have defaults")
    parser.add_argument("--labels", default="{}", help="JSON of node labels")
    parser.add_argument("--store-bytes", type=int, default=0, help="shared memory for objects; 0: a default")
    parser.add_argument("--host", default="127.0.0.1", help="address of this machine")
    parser.add_argument("--name", default="", help="what users call this node; default: its host")
    parser.add_argument("--ready-fd", type=int, default=-1, help="where to write one JSON line when up")
    parser.add_argument("--isolation", default="", help="JSON of control groups for this node; default: none")
    parser.add_argument("--keep-logs", action="store_true", help="leave the session directory behind")
    options = parser.parse_args(argv)
    stacks.register("node agent")
    os.makedirs(os.path.join(options.session_dir, "logs"), mode=0o700, exist_ok=True)
    options.workers_group = ""
    if not options.isolation:
        return _run(options)
    from .isolated import begin  # few nodes are

    groups = begin(options.isolation, options.ready_fd)
    if groups is None:
        return 1
    try:
        options.workers_group = groups.workers
        return _run(options)
    finally:
        groups.end()


def _run(options: argparse.Namespace) -> int:
    zygote = spawn_zygote(options.session_dir)
    # Here and not above: the zygote comes up meanwhile.
    with interpreter.startup():
        from .local_cluster import run

    return run(options, zygote)


if __name__ == "__main__":
    status = main()
    logging.shutdown()
    os._exit(status)  # nothing is left to do, and the driver waits for our end
