"""`python -m runtime._session.supervised MODULE ARGS...`: runs a daemon's module, and ends it with its
starter.

Standard input is a pipe that only the starter holds. When it closes, however the starter died, the daemon
gets SIGTERM, and SIGKILL if it does not end.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
import time

GRACE_S = 5.0


def main() -> None:
    """Becomes the module named by the first argument."""
    module, *arguments = sys.argv[1:]
    threading.Thread(target=_watch, args=(os.dup(0),), name="starter's end", daemon=True).start()
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _watch(pipe: int) -> None:
    while os.read(pipe, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_S)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
