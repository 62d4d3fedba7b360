"""Session directories and the secrets in them."""

from __future__ import annotations

import os
import time

from runtime._node import registry

_SOCKET_LIMIT = 107
_SOCKET_ROOM = len("/sockets/w-0123456789abcdef")


def new_session_dir(root: str | None = None) -> str:
    """Makes a private directory for one session, with `sockets/` and `logs/` in it, and returns its path.

    Args:
        root: where to make it; default: `$CLUSTERCTL_TMPDIR` or the system's temporary directory.

    Raises:
        OSError: it cannot be made, its parent belongs to someone else, or its path is too long for sockets.
    """
    base = root or registry.base_dir()
    if root:
        os.makedirs(base, exist_ok=True)
    else:
        registry.make_private_dir(base)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    path = os.path.join(base, f"session_{stamp}_{os.getpid()}_{os.urandom(3).hex()}")
    too_long = len(os.fsencode(path)) + _SOCKET_ROOM - _SOCKET_LIMIT
    if too_long > 0:
        raise OSError(
            f"the folder {base} is {too_long} bytes too long for Unix sockets: "
            "set CLUSTERCTL_TMPDIR to a shorter one"
        )
    for folder in (path, f"{path}/sockets", f"{path}/logs"):
        os.mkdir(folder, 0o700)
    return path


def write_secret(session_dir: str) -> str:
    """Makes a fresh secret and returns the path of the file that holds it (mode 0600)."""
    path = os.path.join(session_dir, "secret")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(os.urandom(32).hex() + "\n")
    return path
