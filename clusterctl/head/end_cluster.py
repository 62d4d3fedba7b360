"""`python -m clusterctl.head.end_cluster`: for programs on the head's machine that end the cluster when they have
ended themselves. `clusterctl exec --tmux --stop` uses it."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import msgspec

from clusterctl.api_client import ApiClient
from clusterctl.errors import CliError
from clusterctl.head.record import DaemonRecord


def main() -> int:
    """Asks the head; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m clusterctl.head.end_cluster", description=__doc__)
    parser.add_argument("--down", action="store_true", help="for good")
    options = parser.parse_args()
    try:
        session = Path(os.environ["CLUSTERCTL_SESSION_DIR"])
        record = msgspec.json.decode((session / "daemon.json").read_bytes(), type=DaemonRecord)
        secret = Path(record.secret_file).read_text(encoding="ascii").strip()
        body = msgspec.json.encode({"now": True, "down": options.down})
        ApiClient(record.api_url, secret, "here").put("/api/autostop", body)
    except (KeyError, OSError, ValueError, CliError) as error:
        print(f"the cluster cannot be ended from here: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
