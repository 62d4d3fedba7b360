"""The key pair of a cluster: by it the head enters its workers. The operator's own key stays where it is."""

from __future__ import annotations

import os
from pathlib import Path


def ensure(folder: Path, mark: str) -> str:
    """Makes the pair where it is missing; returns the line for `authorized_keys`, which ends with `mark`."""
    private, public = folder / "ssh_key", folder / "ssh_key.pub"
    if not public.exists():
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        key = Ed25519PrivateKey.generate()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        )
        with open(os.open(private, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(secret)
        line = key.public_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
        try:
            public.write_bytes(line + f" {mark}\n".encode())
        except OSError:
            public.unlink(missing_ok=True)  # half of it would pass for a key
            raise
    return public.read_text(encoding="ascii").strip()
