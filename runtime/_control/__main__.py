"""`python -m runtime._control`: the control store as a process of its own, over TCP."""

from __future__ import annotations

import argparse
import sys

from runtime._system import interpreter


def main() -> int:
    """Runs until SIGTERM or SIGINT; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m runtime._control", description=__doc__)
    parser.add_argument("--session-dir", required=True, help="the head's session directory")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0: any free one")
    parser.add_argument("--state", default=":memory:", help="SQLite file, or :memory:")
    parser.add_argument("--secret-file", required=True, help="file that holds the cluster's secret")
    parser.add_argument(
        "--ready-fd", type=int, default=-1, help="where to write one JSON line when it listens"
    )
    parser.add_argument("--cluster-id", default="", help="id of a new cluster; default: random")
    options = parser.parse_args()
    with interpreter.startup():
        from .control_process import run
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
