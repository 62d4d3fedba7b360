"""Pythons of this machine besides the one that runs the tests: those in PATH, of pyenv, and of uv."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
from pathlib import Path

from clusterctl.artefacts.target import LEAST_PYTHON

_ASK = (
    "import sys, sysconfig; print(sys.base_prefix, sysconfig.get_config_var('SOABI'), *sys.version_info[:2])"
)
_FOLDERS = ("~/.pyenv/versions/*/bin", "~/.local/share/uv/python/*/bin", "/opt/python*/bin", "/usr/local/bin")


def another() -> Path | None:
    """The executable of a CPython on which the engine runs, of another minor version than this one; None: there is
    none. Its prefix, two folders up, holds all of it."""
    for version in range(LEAST_PYTHON[1], LEAST_PYTHON[1] + 5):
        name = f"python3.{version}"
        patterns = [f"{os.path.expanduser(folder)}/{name}" for folder in _FOLDERS]
        named = [shutil.which(name), *(path for pattern in patterns for path in sorted(glob.glob(pattern)))]
        for path in filter(None, named):
            if (3, version) != sys.version_info[:2] and _fits(str(path), version):
                return Path(os.path.realpath(str(path)))
    return None


def _fits(path: str, version: int) -> bool:
    """Whether it starts, is an ordinary CPython, and lies in a prefix of its own."""
    ran = subprocess.run(
        [path, "-I", "-c", _ASK], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    said = ran.stdout.split()
    return (
        ran.returncode == 0
        and said[1:] == [f"cpython-3{version}-{os.uname().machine}-linux-gnu", "3", str(version)]
        and os.path.realpath(path).startswith(f"{said[0]}/bin/")
        and said[0] not in ("/usr", "/usr/local")
    )
