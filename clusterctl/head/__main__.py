"""`python -m clusterctl.head`: the head of a cluster. `clusterctl start --head` starts it.

It writes one JSON line to `--ready-fd` when everything is up, or {"error": ...}.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
from concurrent.futures import ThreadPoolExecutor

from clusterctl.head.config import HeadConfig
from clusterctl.head.first import HeadError, first_control_store, listen
from runtime import _stacks


def main() -> int:
    """Runs until SIGTERM; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m clusterctl.head", description=__doc__)
    parser.add_argument("--config", required=True, help="JSON of a HeadConfig")
    parser.add_argument("--secret-file", required=True, help="the cluster's secret")
    parser.add_argument("--session-dir", required=True, help="folder for sockets, logs and state")
    parser.add_argument("--ready-fd", type=int, default=-1, help="where to say that it is up")
    options = parser.parse_args()
    _stacks.register("head")
    logging.basicConfig(
        level=os.environ.get("CLUSTERCTL_LOG_LEVEL", "INFO"),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    ready = options.ready_fd

    def tell(words: dict[str, str]) -> None:
        nonlocal ready
        if ready >= 0:
            with os.fdopen(ready, "w") as pipe:
                pipe.write(json.dumps(words) + "\n")
            ready = -1

    try:
        config = HeadConfig.read(options.config)
        listener = listen(config)
        with ThreadPoolExecutor(1) as early:
            store = early.submit(first_control_store, config, options.secret_file, options.session_dir)
            from clusterctl.head.server import Head  # late: heavy, while the control store comes up
        asyncio.run(Head(config, options.secret_file, options.session_dir).run(listener, store, tell))
    except (HeadError, OSError, ValueError) as error:
        logging.getLogger("clusterctl.head").error("ending: %s", error)
        tell({"error": str(error)})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
