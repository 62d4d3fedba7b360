"""The proof of the cluster's secret that opens every TCP connection, before a single frame is read. Sans-I/O.

Both sides send `GREETING_BYTES`: magic and a fresh nonce. Then both send `PROOF_BYTES`: an HMAC-SHA256 over their role
and both nonces. A side that receives a wrong proof closes the connection. The secret is never sent, and a recorded
proof is worthless.
"""

from __future__ import annotations

import hashlib
import hmac
import os

MAGIC = b"CCTL\x01"
NONCE_BYTES = 32
GREETING_BYTES = len(MAGIC) + NONCE_BYTES
PROOF_BYTES = 32


class HandshakeError(Exception):
    """The peer does not know the cluster's secret, or is not of this system."""


class Handshake:
    """One side of one connection. Send `greeting`, feed the peer's to `proof()`, send that, feed the peer's to
    `verify()`."""

    def __init__(self, secret: bytes, is_client: bool) -> None:
        self._secret = secret
        self._is_client = is_client
        self._nonce = os.urandom(NONCE_BYTES)
        self._peer_nonce = b""
        self.greeting = MAGIC + self._nonce

    def proof(self, peer_greeting: bytes) -> bytes:
        """Returns our proof.

        Raises:
            HandshakeError: the peer's greeting is of another protocol, or our own sent back to us.
        """
        if len(peer_greeting) != GREETING_BYTES or not peer_greeting.startswith(MAGIC):
            raise HandshakeError(
                "the peer does not speak this protocol; perhaps another program listens there"
            )
        self._peer_nonce = peer_greeting[len(MAGIC) :]
        if hmac.compare_digest(self._peer_nonce, self._nonce):
            raise HandshakeError("the peer repeats our own greeting")
        return self._mac(self._is_client)

    def verify(self, peer_proof: bytes) -> None:
        """Raises HandshakeError unless the peer knows the secret."""
        if not hmac.compare_digest(peer_proof, self._mac(not self._is_client)):
            raise HandshakeError(
                "the peer does not know the secret: both sides need the secret file of the same cluster"
            )

    def _mac(self, of_client: bool) -> bytes:
        client, server = (
            (self._nonce, self._peer_nonce) if self._is_client else (self._peer_nonce, self._nonce)
        )
        role = b"client" if of_client else b"server"
        return hmac.new(self._secret, role + client + server, hashlib.sha256).digest()
