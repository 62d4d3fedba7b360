"""`python -m runtime._node`: a node agent as a process of its own, joined to a control store over TCP."""

from __future__ import annotations

import argparse
import json
import sys

from runtime._system import interpreter
from runtime._system.ready import Ready

from .options import NodeOptions


def main() -> int:
    """Runs until the node should end; returns the exit status."""
    given = vars(_parser().parse_args())
    ready = Ready(given.pop("ready_fd"))
    with interpreter.startup():
        from .agent_process import run
    return run(NodeOptions(**given), ready.tell)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m runtime._node", description=__doc__)
    parser.add_argument("--control", required=True, help="host:port of the control store")
    parser.add_argument("--session-dir", required=True, help="private directory of this node")
    parser.add_argument("--host", default="127.0.0.1", help="address under which other nodes reach this one")
    parser.add_argument(
        "--resources", type=json.loads, default={}, help="JSON of amounts; CPU and memory have defaults"
    )
    parser.add_argument("--labels", type=json.loads, default={}, help="JSON of node labels")
    parser.add_argument("--store-bytes", type=int, default=0, help="shared memory for objects; 0: a default")
    parser.add_argument("--secret-file", required=True, help="file that holds the cluster's secret")
    parser.add_argument("--ready-fd", type=int, default=-1, help="where to write one JSON line when up")
    parser.add_argument("--head", action="store_true", help="this node is the cluster's head")
    parser.add_argument("--instance-id", default="", help="the autoscaler's name of this machine")
    parser.add_argument("--node-type", default="", help="the node type of the cluster's specification")
    parser.add_argument("--node-id", default="", help="hex; default: random")
    parser.add_argument("--name", default="", help="what users call this node; default: its host")
    parser.add_argument(
        "--zygote-delay-s",
        type=float,
        default=0.0,
        help="delay of the zygote's start, unless a worker is wanted before",
    )
    parser.add_argument(
        "--sockets-dir", default="", help="of Unix sockets; default: in the session directory"
    )
    parser.add_argument("--exit-with-driver", action="store_true", help="end when the driver has left")
    parser.add_argument("--remove-session-dir", action="store_true", help="leave no logs either")
    parser.add_argument(
        "--control-reconnect-s", type=float, default=7.0, help="end after this time without a control store"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
