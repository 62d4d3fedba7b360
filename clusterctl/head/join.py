"""`python -P -m clusterctl.head.join ORDER`: makes a machine a node, as `clusterctl start --address` does.

It is what `up` runs on every worker, so it costs little: it imports no command line, and forks the node agent instead
of starting another Python.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from runtime._lean import lean_imports


def main() -> NoReturn:
    """Prints the daemon's record, and ends this process."""
    with lean_imports():
        import msgspec

        from clusterctl.errors import CliError

        from .order import JoinOrder
        from .worker import start_worker
    try:
        record = start_worker(msgspec.json.decode(sys.argv[1], type=JoinOrder), forked=True)
    except CliError as error:
        sys.exit(f"error: {error}")
    print(msgspec.json.encode(record).decode(), flush=True)
    os._exit(0)  # nothing is left to be finished


if __name__ == "__main__":
    main()
