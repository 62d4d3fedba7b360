"""Who knows the secret is let in, and nobody else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime._wire.handshake import GREETING_BYTES, MAGIC, PROOF_BYTES, Handshake, HandshakeError

SECRET = b"s" * 32


def pair(client_secret: bytes = SECRET, server_secret: bytes = SECRET) -> tuple[Handshake, Handshake]:
    return Handshake(client_secret, is_client=True), Handshake(server_secret, is_client=False)


@given(st.binary(min_size=1, max_size=64))
def test_both_know_the_secret(secret: bytes) -> None:
    client, server = pair(secret, secret)
    client_proof, server_proof = client.proof(server.greeting), server.proof(client.greeting)
    client.verify(server_proof)
    server.verify(client_proof)


def test_sizes() -> None:
    client, server = pair()
    assert len(client.greeting) == GREETING_BYTES
    assert len(client.proof(server.greeting)) == PROOF_BYTES


def test_a_client_with_another_secret_is_refused() -> None:
    client, server = pair(client_secret=b"other")
    proof = client.proof(server.greeting)
    server.proof(client.greeting)
    with pytest.raises(HandshakeError, match="does not know the secret"):
        server.verify(proof)


def test_a_server_with_another_secret_is_refused() -> None:
    client, server = pair(server_secret=b"other")
    client.proof(server.greeting)
    with pytest.raises(HandshakeError, match="does not know the secret"):
        client.verify(server.proof(client.greeting))


def test_our_own_proof_sent_back_does_not_prove_anything() -> None:
    client, server = pair()
    proof = client.proof(server.greeting)
    with pytest.raises(HandshakeError):
        client.verify(proof)


def test_our_own_greeting_sent_back_is_refused() -> None:
    client, _ = pair()
    with pytest.raises(HandshakeError, match="repeats our own greeting"):
        client.proof(client.greeting)


def test_a_proof_of_one_connection_is_worthless_on_another() -> None:
    client, server = pair()
    recorded = client.proof(server.greeting)
    _, later = pair()
    later.proof(client.greeting)
    with pytest.raises(HandshakeError):
        later.verify(recorded)


def test_relaying_to_another_server_does_not_help() -> None:
    """Somebody in the middle lets two servers prove themselves to each other: the roles are part of the proof."""
    first, second = Handshake(SECRET, is_client=False), Handshake(SECRET, is_client=False)
    proof = first.proof(second.greeting)
    second.proof(first.greeting)
    with pytest.raises(HandshakeError):
        second.verify(proof)


@pytest.mark.parametrize(
    "greeting",
    [
        b"",
        b"x" * GREETING_BYTES,
        MAGIC,
        MAGIC + b"n" * 31,
        MAGIC + b"n" * 33,
        MAGIC[:-1] + b"\x02" + b"n" * 32,
        b"GET / HTTP/1.1\r\nHost: localhost\r\nxx",
    ],
)
def test_another_protocol_is_refused(greeting: bytes) -> None:
    client, _ = pair()
    with pytest.raises(HandshakeError, match="does not speak this protocol"):
        client.proof(greeting)


@given(st.binary(max_size=64))
def test_no_guess_is_a_proof(guess: bytes) -> None:
    client, server = pair()
    server.proof(client.greeting)
    with pytest.raises(HandshakeError):
        server.verify(guess)


def test_the_secret_does_not_travel() -> None:
    client, server = pair()
    sent = client.greeting + client.proof(server.greeting)
    assert SECRET not in sent


def test_every_connection_is_fresh() -> None:
    assert pair()[0].greeting != pair()[0].greeting
