"""What the two ends of a channel say on their socket: small control frames on one node, the values too over TCP.

A frame is a kind (1 byte), a length (8 bytes) and as many bytes. The reader says HELLO first, the writer's process
WELCOME or REFUSED; afterwards either side may say FAILED.
"""

from __future__ import annotations

import array
import os
import socket
import struct

from runtime._wire.serialization import aligned_room

HEAD = struct.Struct("<BQ")
HELLO, WELCOME, REFUSED, CLOSED, FAILED, TAKEN = range(1, 7)
VALUE = 16
"""HELLO: who opens which channel. CLOSED: nothing comes after so many values (the writer), or nothing is read any more
(a reader). FAILED: an error. TAKEN: so many more values. VALUE + kind: a value of this kind."""
COUNT = struct.Struct("<Q")
MAX_CONTROL_BYTES = 8 << 20
FDS = 3


class FrameReader:
    """Cuts what a socket brings into frames; never blocks.

    Args:
        sock: the socket, without a timeout: with one Python would wait in spite of MSG_DONTWAIT.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._received = bytearray()
        self.is_over = False
        """Whether the peer has closed its side or is gone."""

    def read(self) -> list[tuple[int, bytes]]:
        """The frames that are complete by now."""
        while not self.is_over:
            try:
                data = self._sock.recv(1 << 16, socket.MSG_DONTWAIT)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                data = b""
            if not data:
                self.is_over = True
            self._received += data
        frames = []
        while len(self._received) >= HEAD.size:
            kind, length = HEAD.unpack_from(self._received)
            if length > MAX_CONTROL_BYTES:
                self.is_over = True  # not one of us
                break
            end = HEAD.size + length
            if len(self._received) < end:
                break
            frames.append((kind, bytes(self._received[HEAD.size : end])))
            del self._received[:end]
        return frames


def send(sock: socket.socket, kind: int, *payload: bytes | memoryview) -> None:
    """Sends a frame, within the socket's timeout.

    Raises:
        OSError: the peer is gone or does not read.
    """
    head = HEAD.pack(kind, sum(len(part) for part in payload))
    if sum(len(part) for part in payload) <= 1 << 16:
        sock.sendall(b"".join((head, *payload)))
        return
    sock.sendall(head)
    for part in payload:
        sock.sendall(part)


def send_with_fds(sock: socket.socket, kind: int, payload: bytes, fds: list[int]) -> None:
    """Sends a frame with descriptors over a Unix socket.

    Raises:
        OSError: the peer is gone.
    """
    data = HEAD.pack(kind, len(payload)) + payload
    sent = sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
    if sent < len(data):
        sock.sendall(data[sent:])


def receive(sock: socket.socket) -> tuple[int, memoryview]:
    """Waits for a frame, within the socket's timeout for each part. Its bytes are aligned like those in memory.

    Raises:
        OSError: none came.
    """
    head = memoryview(bytearray(HEAD.size))
    _fill(sock, head)
    kind, length = HEAD.unpack(head)
    payload = aligned_room(length)
    _fill(sock, payload)
    return kind, payload


def receive_with_fds(sock: socket.socket) -> tuple[int, memoryview, list[int]]:
    """Like `receive`, with the descriptors that came with the frame's beginning.

    Raises:
        OSError: none came.
    """
    data, ancillary, _flags, _address = sock.recvmsg(
        HEAD.size, socket.CMSG_SPACE(FDS * array.array("i").itemsize), socket.MSG_CMSG_CLOEXEC
    )
    fds = array.array("i")
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
    try:
        if not data:
            raise ConnectionError("the peer closed the connection")
        head = memoryview(bytearray(HEAD.size))
        head[: len(data)] = data
        _fill(sock, head[len(data) :])
        kind, length = HEAD.unpack(head)
        payload = memoryview(bytearray(length))
        _fill(sock, payload)
    except BaseException:
        for fd in fds:
            os.close(fd)
        raise
    return kind, payload, list(fds)


def _fill(sock: socket.socket, room: memoryview) -> None:
    while room:
        count = sock.recv_into(room)
        if not count:
            raise ConnectionError("the peer closed the connection")
        room = room[count:]
