"""The private keys by which a machine lets the operator in, and the agent that may hold them."""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from clusterctl import settings

from .channel import in_time
from .watched import channel_errors

if TYPE_CHECKING:
    import paramiko

_ANSWER_S = 3.0


def agent_silence() -> str:
    """Says that there is an agent which does not answer; "" otherwise. paramiko would wait for it without a limit."""
    import paramiko

    path = settings.SSH_AGENT.get()
    if not path:
        return ""
    try:
        in_time(lambda: paramiko.Agent().close(), time.monotonic() + _ANSWER_S)
    except TimeoutError:
        return (
            f"the ssh-agent at {path} did not answer within {_ANSWER_S:g} s, so that its keys were not tried: start "
            "it anew, unset SSH_AUTH_SOCK, or set auth.ssh_private_key"
        )
    except channel_errors():
        pass  # it is gone, or refuses: it has no keys for us
    return ""


def is_usable(identity: str) -> bool:
    """Whether a file holds a private key that needs no passphrase."""
    import paramiko

    try:
        paramiko.PKey.from_path(identity)
    except Exception:  # paramiko and cryptography have a kind of their own for each way to be no key
        return False
    return True


def certified(certificate: str, identities: Sequence[str]) -> paramiko.PKey | None:
    """The private key to which a certificate belongs, and which shows it from now on; None: none of those that can be
    read. A machine may know only who signs such certificates.

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
