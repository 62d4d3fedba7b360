"""The key pair of a cluster: by it the head enters its workers. The operator's own key stays where it is."""

from __future__ import annotations

import base64
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from runtime._system import files

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_BEGIN, _END = "-----BEGIN OPENSSH PRIVATE KEY-----", "-----END OPENSSH PRIVATE KEY-----"


def ensure(folder: Path, mark: str) -> str:
    """Makes the pair where it is missing; returns the line for `authorized_keys`, which ends with `mark`.

    A damaged half counts as missing. Without its public half the private one stays the cluster's key, since machines
    may know it already.

    Raises:
        OSError: it cannot be written.
    """
    private, public = folder / "ssh_key", folder / "ssh_key.pub"
    known = _known(private, public)
    if known:
        return known
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = _whole(private)
    if key is None:
        key = Ed25519PrivateKey.generate()
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        )
        files.replace(str(private), secret)
    half = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    line = f"{half.decode()} {mark}"
    files.replace(str(public), f"{line}\n".encode())
    return line


def same_key(one: str, other: str) -> bool:
    """Whether two lines for `authorized_keys` have the same key; their comments do not matter."""
    return one.split()[:2] == other.split()[:2]


def _known(private: Path, public: Path) -> str:
    """The line of a pair that is whole, else "". Reads the files' form alone, since to load a key takes long."""
    try:
        secret, line = private.read_text(encoding="ascii").strip(), public.read_text(encoding="ascii").strip()
        kind, half, _ = line.split(" ", 2)
        begin, body, end = secret[: len(_BEGIN)], secret[len(_BEGIN) : -len(_END)], secret[-len(_END) :]
        blob = base64.b64decode(half, validate=True)
        belongs = len(blob).to_bytes(4) + blob in base64.b64decode(body)  # which holds the public half, too
    except (OSError, ValueError):
        return ""
    return line if (kind, begin, end) == ("ssh-ed25519", _BEGIN, _END) and belongs else ""


def _whole(private: Path) -> Ed25519PrivateKey | None:
    """The private key, where its file is there and undamaged."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    with contextlib.suppress(OSError, ValueError, UnsupportedAlgorithm):
        key = serialization.load_ssh_private_key(private.read_bytes(), None)
        return key if isinstance(key, Ed25519PrivateKey) else None
    return None
