"""`python -m clusterctl.head`: the head of a cluster. `clusterctl start --head` starts it.

When everything is up it writes `<session>/daemon.json`, and then one JSON line to `--ready-fd`; {"error": ...} when it
cannot come up. Whoever started it need not be there any more to hear of it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import sys
from concurrent.futures import ThreadPoolExecutor

from clusterctl import processes
from clusterctl.head.first import HeadError, first_control_store, listen, with_ports_of_before
from clusterctl.startup.config import HeadConfig
from clusterctl.startup.record import DaemonRecord, boot_id, read, remember
from runtime._node import registry
from runtime._system import daemon_log, files, interpreter, stacks


def main() -> int:
    """Runs until SIGTERM; returns the exit status."""
    coming_up = contextlib.ExitStack()
    coming_up.enter_context(interpreter.startup())
    parser = argparse.ArgumentParser(prog="python -m clusterctl.head", description=__doc__)
    parser.add_argument("--config", required=True, help="JSON of a HeadConfig")
    parser.add_argument("--secret-file", required=True, help="the cluster's secret")
    parser.add_argument("--session-dir", required=True, help="folder for sockets, logs and state")
    parser.add_argument("--ready-fd", type=int, default=-1, help="where to say that it is up")
    options = parser.parse_args()
    stacks.register("head")
    daemon_log.begin()
    ready = options.ready_fd

    def tell(words: dict[str, str]) -> None:
        nonlocal ready
        if ready >= 0:
            pipe, ready = ready, -1
            with contextlib.suppress(BrokenPipeError), os.fdopen(pipe, "w") as listener:
                listener.write(json.dumps(words) + "\n")

    def tell_up(words: dict[str, str]) -> None:
        coming_up.close()
        assert config is not None
        remember(options.session_dir, _record(options, config, words))
        tell(words)

    config: HeadConfig | None = None
    try:
        config = with_ports_of_before(HeadConfig.read(options.config), options.session_dir)
        listener = listen(config)
        with ThreadPoolExecutor(1) as early:
            store = early.submit(first_control_store, config, options.secret_file, options.session_dir)
            from clusterctl.head.server import Head  # late: heavy, while the control store comes up
        asyncio.run(
            Head(config, options.secret_file, options.session_dir, options.config).run(
                listener, store, tell_up
            )
        )
    except (HeadError, OSError, ValueError) as error:
        logging.getLogger("clusterctl.head").error("ending: %s", error)
        tell({"error": str(error)})
        return 1
    finally:
        if config is not None and config.is_temporary:
            files.remove_tree(options.session_dir)
            registry.remove_empty(os.path.dirname(options.session_dir))
    return 0


def _record(options: argparse.Namespace, config: HeadConfig, words: dict[str, str]) -> DaemonRecord:
    before = read(options.session_dir)  # of the head that crashed
    return DaemonRecord(
        pid=os.getpid(),
        start_ticks=processes.start_ticks(os.getpid()) or -1,
        role="head",
        session_dir=options.session_dir,
        secret_file=options.secret_file,
        boot_id=boot_id(),
        cluster_id=config.cluster_id,
        boot_entry=before.boot_entry if before is not None else "",
        **words,
    )


if __name__ == "__main__":
    sys.exit(main())
