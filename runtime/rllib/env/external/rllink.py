"""The protocol between an external environment (the client) and an environment runner (the server).

A message is eight digits, the size of its body in bytes, and the body: a msgpack map with the key "type". Arrays are
maps as `msgpack_numpy` writes them, so clients in other languages can make them.

Requests: PING, GET_CONFIG, GET_STATE, EPISODES ("episodes": a list of states of episodes) and EPISODES_AND_GET_STATE,
which is answered once new weights are there. Answers: PONG, SET_CONFIG ("config": pickled) and SET_STATE ("state").
"""

from __future__ import annotations

import enum
import socket
import time
from typing import Any

import msgspec
import numpy as np

PROTOCOL_VERSION = "0.0.1"
_HEADER_BYTES = 8
_LARGEST_BODY = 10**_HEADER_BYTES - 1


class RLlink(enum.Enum):
    """The types of messages."""

    PING = "PING"
    EPISODES = "EPISODES"
    GET_STATE = "GET_STATE"
    GET_CONFIG = "GET_CONFIG"
    EPISODES_AND_GET_STATE = "EPISODES_AND_GET_STATE"
    PONG = "PONG"
    SET_STATE = "SET_STATE"
    SET_CONFIG = "SET_CONFIG"

    def __str__(self) -> str:
        return self.name


def send_rllink_message(sock_: socket.socket, message: dict[str, Any]) -> None:
    """Sends a message.

    Args:
        sock_: a connected socket; its timeout bounds the whole call.
        message: with the key "type", the name of an `RLlink`.

    Raises:
        ConnectionError: the peer is gone, or does not read in time.
        ValueError: the message is larger than a size of eight digits can say.
    """
    body = msgspec.msgpack.encode(message, enc_hook=_packed)
    if len(body) > _LARGEST_BODY:
        raise ValueError(
            f"A message of {len(body)} bytes is too large: at most {_LARGEST_BODY}. Send fewer episodes"
        )
    try:
        sock_.sendall(str(len(body)).zfill(_HEADER_BYTES).encode() + body)
    except OSError as error:
        raise ConnectionError(f"Cannot send {message.get('type')} to {_name(sock_)}: {error}") from error


def get_rllink_message(sock_: socket.socket, timeout_s: float | None = None) -> tuple[RLlink, dict[str, Any]]:
    """Waits for a message.

    Args:
        sock_: a connected socket.
        timeout_s: how long to wait for the whole message; None: as long as the socket's own timeout for each part.

    Returns:
        (its type, its other items).

    Raises:
        TimeoutError: it did not come in time. If a part of it came, the connection is of no more use.
        ConnectionError: the peer is gone, or sent something else.
    """
    before = sock_.gettimeout()
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    try:
        header = _read(sock_, _HEADER_BYTES, deadline)
        if not header.isdigit():
            raise ConnectionError(f"{_name(sock_)} sent {header!r} where the size of a message must be")
        body = _read(sock_, int(header), deadline)
    finally:
        sock_.settimeout(before)
    try:
        message = _unpacked(msgspec.msgpack.decode(body))
        return RLlink(message.pop("type")), message
    except (msgspec.DecodeError, KeyError, ValueError, AttributeError, TypeError) as error:
        raise ConnectionError(f"{_name(sock_)} sent a message that cannot be read: {error!r}") from error


def _read(sock_: socket.socket, size: int, deadline: float | None) -> bytes:
    data = bytearray()
    while len(data) < size:
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"{_name(sock_)} sent {len(data)} of {size} bytes in time")
            sock_.settimeout(left)
        try:
            part = sock_.recv(min(size - len(data), 1 << 20))
        except TimeoutError:
            raise TimeoutError(f"{_name(sock_)} sent {len(data)} of {size} bytes in time") from None
        except OSError as error:
            raise ConnectionError(f"Cannot read from {_name(sock_)}: {error}") from error
        if not part:
            raise ConnectionError(f"{_name(sock_)} has closed the connection")
        data += part
    return bytes(data)


def _name(sock_: socket.socket) -> str:
    try:
        return f"the peer at {sock_.getpeername()}"
    except OSError:
        return "the peer"


def _packed(value: Any) -> Any:
    """Arrays and NumPy's numbers as `msgpack_numpy` writes them."""
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise NotImplementedError(f"An array of {value.dtype} cannot be sent")
        return {
            b"nd": True,
            b"type": value.dtype.str,
            b"kind": b"",
            b"shape": list(value.shape),
            b"data": np.ascontiguousarray(value).tobytes(),
        }
    if isinstance(value, np.generic):
        return {b"nd": False, b"type": value.dtype.str, b"data": value.tobytes()}
    raise NotImplementedError(f"A message cannot hold a {type(value).__name__}")


def _unpacked(value: Any) -> Any:
    if isinstance(value, dict):
        kind = value.get(b"nd", value.get("nd"))
        if kind is None:
            return {key: _unpacked(item) for key, item in value.items()}
        plain = {key.decode() if isinstance(key, bytes) else key: item for key, item in value.items()}
        dtype = np.dtype(plain["type"])
        if not kind:
            return np.frombuffer(plain["data"], dtype)[0]
        return np.frombuffer(plain["data"], dtype).reshape(plain["shape"]).copy()
    if isinstance(value, list):
        return [_unpacked(item) for item in value]
    return value
