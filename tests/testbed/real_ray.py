"""A Python that has the real Ray: the one that CLUSTERCTL_RAY_PYTHON names, or an environment beside this one that is
made when it is first asked for (it takes the index of packages, some 400 MB and the better part of a minute)."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

VERSION = "2.60.0"
_INSTALL_S = 240.0


class Missing(Exception):
    """There is no Ray here, and why."""


@cache
def python() -> str:
    """The Python.

    Raises:
        Missing: there is none, and it cannot be had.
    """
    named = os.environ.get("CLUSTERCTL_RAY_PYTHON")
    if named:
        return named
    folder = Path(sys.prefix) / f"ray-{VERSION}"
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            shutil.rmtree(folder, ignore_errors=True)
            _make(folder)
            (folder / "ready").touch()
    return str(folder / "bin" / "python")


def hidden_from_hosts() -> list[str]:
    """Where the Python is, if that is a place that hosts have to themselves: to be shared with them."""
    folder = Path(python()).parents[1]
    return [str(folder)] if folder.is_relative_to(tempfile.gettempdir()) else []


def _make(folder: Path) -> None:
    python = str(folder / "bin" / "python")
    install = [
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        f"ray[default]=={VERSION}",
    ]
    for command in ([sys.executable, "-m", "venv", str(folder)], install):
        try:
            ran = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=_INSTALL_S,
                stdin=subprocess.DEVNULL,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise Missing(f"Ray {VERSION} could not be installed in {_INSTALL_S:g} s") from error
        if ran.returncode:
            raise Missing(f"Ray {VERSION} cannot be installed: {ran.stderr.strip()[-300:]}")
