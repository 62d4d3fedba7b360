"""Certificates of the operator's keys, by which machines know them that know only who signs such certificates."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import paramiko


def key_of(certificate: str, identities: Sequence[str]) -> paramiko.PKey | None:
    """The private key to which a certificate belongs, and which shows it from now on; None: none of those that can be
    read.

    Args:
        certificate: its file.
        identities: files of private keys.

    Raises:
        OSError: the certificate cannot be read.
    """
    import paramiko

    with open(certificate, encoding="utf-8") as file:
        text = file.read()
    for identity in identities:
        try:
            key = paramiko.PKey.from_path(identity)
            if _belongs(text, key):
                key.load_certificate(text)
                return key
        except (OSError, ValueError, TypeError, paramiko.SSHException):
            continue  # it has a passphrase, or is no key
    return None


def _belongs(certificate: str, key: paramiko.PKey) -> bool:
    """A certificate repeats the public key, but for the name of its kind."""
    public = key.asbytes()
    start = 4 + int.from_bytes(public[:4])
    return public[start:] in base64.b64decode(certificate.split()[1])
