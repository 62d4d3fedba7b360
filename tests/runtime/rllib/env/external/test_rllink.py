"""Messages over a real socket."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import numpy as np
import pytest

from runtime.rllib.env.external.rllink import RLlink, get_rllink_message, send_rllink_message

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    one, other = socket.socketpair()
    with one, other:
        one.settimeout(5)
        other.settimeout(5)
        yield one, other


def test_messages_carry_arrays(pair: Pair) -> None:
    message = {
        "type": "EPISODES",
        "episodes": [
            {"obs": np.arange(6, dtype=np.float32).reshape(2, 3), "done": np.bool_(True), "n": [1, None, "x"]}
        ],
    }
    send_rllink_message(pair[0], message)
    kind, body = get_rllink_message(pair[1])
    assert kind is RLlink.EPISODES
    (episode,) = body["episodes"]
    np.testing.assert_array_equal(episode["obs"], message["episodes"][0]["obs"])  # type: ignore[index]
    assert episode["obs"].dtype == np.float32
    assert episode["done"]
    assert episode["n"] == [1, None, "x"]
    episode["obs"][0] = 7  # it is the receiver's own


def test_the_header_is_the_size_in_eight_digits(pair: Pair) -> None:
    send_rllink_message(pair[0], {"type": "PING"})
    data = pair[1].recv(100)
    assert data[:8] == b"%08d" % (len(data) - 8)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"1234567", "closed"),
        (b"abcdefgh", "size"),
        (b"00000001\xc1", "cannot be read"),
        (b"00000001\x01", "cannot be"),
    ],
)
def test_what_cannot_be_read(pair: Pair, data: bytes, error: str) -> None:
    pair[0].sendall(data)
    pair[0].shutdown(socket.SHUT_WR)
    with pytest.raises(ConnectionError, match=error):
        get_rllink_message(pair[1])


def test_a_message_has_a_deadline(pair: Pair) -> None:
    pair[0].sendall(b"0000")
    with pytest.raises(TimeoutError, match="4 of 8 bytes"):
        get_rllink_message(pair[1], timeout_s=0.01)
    assert pair[1].gettimeout() == 5


def test_a_peer_that_is_gone(pair: Pair) -> None:
    pair[1].close()
    with pytest.raises(ConnectionError, match="PING"):
        send_rllink_message(pair[0], {"type": "PING"})


def test_objects_cannot_be_sent(pair: Pair) -> None:
    with pytest.raises(NotImplementedError, match="cannot hold a object"):
        send_rllink_message(pair[0], {"type": "PING", "x": object()})
    with pytest.raises(NotImplementedError, match="array of object"):
        send_rllink_message(pair[0], {"type": "PING", "x": np.array([object()])})
