"""`python -m clusterctl` and the `clusterctl` command."""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Runs the command line and exits."""
    from clusterctl.app import app

    app(prog_name="clusterctl")
    sys.exit(0)


if __name__ == "__main__":
    main()
