"""A connection over a real socket: every message arrives, whole and in order; every call ends."""

from __future__ import annotations

import errno
import os
import re
import socket
from collections.abc import Callable
from typing import Any

import pytest

from runtime._transport import connection as connection_module
from runtime._transport.connection import RECEIVE_BYTES, Connection
from runtime._transport.pump import Pump
from runtime._wire.framing import (
    HEADER,
    HEADER_BYTES,
    MAX_FRAME_BYTES,
    REPLY_BIT,
    MessageTooLargeError,
    encode_frame,
)
from runtime._wire.messages import codec
from runtime._wire.messages.base import ErrorKind, ErrorReply, Ok
from runtime._wire.messages.node import StateRows
from runtime._wire.messages.worker import BorrowRefs, GetObject, ObjectValue, ReturnRefs, Value
from tests.polling import eventually
from tests.runtime._transport.pair import LIMIT_S, ask, client_and_server, ignore

# ---------------------------------------------------------------- calls


def test_a_call_is_answered() -> None:
    with client_and_server() as (pump, connection, _):
        reply = pump.call(connection, ask(5), LIMIT_S)
        assert reply == ObjectValue(Value(0, bytes(5)))


def test_many_calls_at_once_each_get_their_own_answer() -> None:
    with client_and_server() as (pump, connection, _):
        answers: dict[int, int] = {}
        for size in range(500):
            connection.call(
                ask(size), lambda reply, size=size: answers.__setitem__(size, len(reply.value.data))
            )
        assert pump.wait(lambda: len(answers) == 500, LIMIT_S)
        assert answers == {size: size for size in range(500)}


def test_messages_arrive_in_order() -> None:
    with client_and_server() as (pump, connection, server):
        for number in range(3000):
            connection.send(ReturnRefs([number.to_bytes(4, "big")]))
        pump.call(connection, ask(0), LIMIT_S)
        assert server.notes == [number.to_bytes(4, "big") for number in range(3000)]


@pytest.mark.parametrize(
    "size", [0, 1, RECEIVE_BYTES - 50, RECEIVE_BYTES, RECEIVE_BYTES + 1, 1 << 20, 5 << 20]
)
def test_frames_of_any_size_arrive(size: int) -> None:
    with client_and_server() as (pump, connection, _):
        assert len(pump.call(connection, ask(size), LIMIT_S).value.data) == size


def test_large_frames_between_small_ones() -> None:
    with client_and_server() as (pump, connection, _):
        sizes = [3, 2 << 20, 0, 1, 3 << 20, 7, 300_000, 2]
        got: list[int] = []
        for size in sizes:
            connection.call(ask(size), lambda reply: got.append(len(reply.value.data)))
        assert pump.wait(lambda: len(got) == len(sizes), LIMIT_S)
        assert got == sizes


def test_large_frames_in_both_directions_at_once() -> None:
    """Neither side may stop reading because it has much to write."""
    with client_and_server() as (pump, connection, server):
        blobs = [os.urandom(1) * (1 << 20) for _ in range(8)]
        got: list[int] = []
        for blob in blobs:
            connection.send(ReturnRefs([blob]))
            connection.call(ask(1 << 20), lambda reply: got.append(len(reply.value.data)))
        assert pump.wait(lambda: len(got) == 8, LIMIT_S)
        assert server.notes == blobs


def test_no_answer_in_time() -> None:
    with client_and_server() as (pump, connection, _):
        reply = pump.call(connection, BorrowRefs([]), 0.01)
        assert isinstance(reply, ErrorReply)
        assert reply.kind == ErrorKind.TIMEOUT
        assert "BorrowRefs" in reply.message
        assert pump.call(connection, ask(1), LIMIT_S).value.data == b"\0"


def test_an_answer_that_nobody_knows_is_ignored() -> None:
    with client_and_server() as (pump, connection, server):
        server.accepted[0].reply(Ok(), 12345)
        assert pump.call(connection, ask(2), LIMIT_S).value.data == b"\0\0"


# ---------------------------------------------------------------- what cannot be sent


@pytest.mark.parametrize("wrong", [object(), 2**70], ids=["type", "number"])
def test_a_message_that_cannot_be_encoded_hurts_nobody_else(wrong: Any) -> None:
    with client_and_server() as (pump, connection, server):
        connection.send(ReturnRefs([b"before"]))
        with pytest.raises((TypeError, OverflowError)):
            connection.send(StateRows([{"name": "x" * 1000, "wrong": wrong}]))
        connection.send(ReturnRefs([b"after"]))
        assert pump.call(connection, ask(1), LIMIT_S).value.data == b"\0"
        assert server.notes == [b"before", b"after"]


def test_a_request_that_cannot_be_encoded_is_answered_so() -> None:
    with client_and_server() as (pump, connection, _):
        reply = pump.call(connection, GetObject(object()), LIMIT_S)  # type: ignore[arg-type]
        assert reply.kind == ErrorKind.INVALID
        assert "GetObject cannot be sent" in reply.message
        assert pump.call(connection, ask(1), LIMIT_S).value.data == b"\0"


def test_a_reply_that_cannot_be_encoded_becomes_an_error() -> None:
    with client_and_server() as (pump, connection, server):
        server.accepted[0].handler = lambda connection, _message, correlation: connection.reply(
            StateRows([{"wrong": object()}]), correlation
        )
        reply = pump.call(connection, ask(1), LIMIT_S)
        assert reply.kind == ErrorKind.INVALID
        assert "StateRows cannot be sent" in reply.message
        assert not connection.closed


def test_messages_over_the_limit_fail_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with client_and_server() as (pump, connection, server):
        monkeypatch.setattr(connection_module, "MAX_FRAME_BYTES", 1000)
        words = r"has 10\d\d bytes, and one message may have at most 1000.*references"
        with pytest.raises(MessageTooLargeError, match=f"ReturnRefs {words}"):
            connection.send(ReturnRefs([bytes(1000)]))
        request = pump.call(connection, BorrowRefs([bytes(1000)]), LIMIT_S)
        assert request.kind == ErrorKind.INVALID
        assert re.search(f"BorrowRefs {words}", request.message)
        reply = pump.call(connection, ask(1000), LIMIT_S)
        assert reply.kind == ErrorKind.INVALID
        assert re.search(f"ObjectValue {words}", reply.message)
        assert len(pump.call(connection, ask(900), LIMIT_S).value.data) == 900
        assert server.notes == []


def test_lone_surrogates_arrive_escaped() -> None:
    with client_and_server() as (pump, connection, server):
        got: list[Any] = []
        server.accepted[0].handler = lambda _connection, message, _correlation: got.append(message)
        connection.send(StateRows([{"file \udcff": "\udc80 and ü"}]))
        assert pump.wait(lambda: got, LIMIT_S)
        assert got == [StateRows([{"file \\udcff": "\\udc80 and ü"}])]


# ---------------------------------------------------------------- a peer that does not read


def test_a_peer_that_leaves_too_much_unread_is_dropped_with_a_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_module, "CONGESTED_BYTES", 1 << 18)
    monkeypatch.setattr(connection_module, "MAX_UNSENT_BYTES", 1 << 20)
    ours, theirs = socket.socketpair()
    pump = Pump(ignore)
    with theirs:
        connection = pump.add(ours, "somebody")
        replies: list[Any] = []
        connection.call(BorrowRefs([]), replies.append)
        for _ in range(1000):  # a hundred times what may wait
            connection.send(ReturnRefs([bytes(1 << 17)]))
        assert connection.closed
        assert replies[0].kind == ErrorKind.UNAVAILABLE
        assert re.search(r"somebody leaves \d+ bytes unread", replies[0].message)
    pump.stop()


def test_who_can_wait_is_told_when_a_slow_peer_takes_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "CONGESTED_BYTES", 1 << 18)
    ours, theirs = socket.socketpair()
    pump = Pump(ignore)
    with theirs:
        connection = pump.add(ours, "somebody")
        told: list[Connection] = []
        connection.on_room = told.append
        count = 0
        while not connection.congested:
            connection.send(ReturnRefs([bytes(1 << 16)]))
            count += 1
        assert not told
        size = len(codec.encode(ReturnRefs([bytes(1 << 16)]))) + HEADER_BYTES
        left = count * size
        theirs.settimeout(LIMIT_S)
        while left:
            pump.poll_once()
            left -= len(theirs.recv(1 << 16))
        assert told == [connection]
        assert not connection.congested
    pump.stop()


# ---------------------------------------------------------------- the end of a connection


def test_pending_calls_end_with_the_connection() -> None:
    with client_and_server() as (pump, connection, server):
        replies: list[Any] = []
        for _ in range(3):
            connection.call(BorrowRefs([]), replies.append)
        server.accepted[0].close()
        assert pump.wait(lambda: len(replies) == 3, LIMIT_S)
        assert {reply.kind for reply in replies} == {ErrorKind.UNAVAILABLE}


def test_a_call_on_a_closed_connection_is_answered_at_once() -> None:
    with client_and_server() as (_, connection, _server):
        connection.close()
        replies: list[Any] = []
        connection.call(ask(1), replies.append)
        assert replies[0].kind == ErrorKind.UNAVAILABLE
        connection.send(Ok())
        connection.close()


def test_the_end_is_told_once() -> None:
    with client_and_server() as (pump, connection, server):
        told: list[Connection] = []
        connection.on_close = told.append
        server.accepted[0].close()
        assert pump.wait(lambda: told, LIMIT_S)
        connection.close()
        assert told == [connection]


def test_what_was_sent_before_the_end_still_arrives() -> None:
    with client_and_server() as (pump, connection, server):
        for number in range(1000):
            connection.send(ReturnRefs([number.to_bytes(4, "big")]))
        pump.flush_all()
        connection.close()
        assert eventually(lambda: len(server.notes) == 1000)


class FullSocket(socket.socket):
    """Cannot send, although its peer is there."""

    def send(self, *_: Any) -> int:
        raise OSError(errno.ENOBUFS, "no buffer space")


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        return ours, server.accept()[0]


@pytest.mark.parametrize(
    ("pair", "size"), [(socket.socketpair, RECEIVE_BYTES * 2), (tcp_pair, 1000)], ids=["unix", "tcp"]
)
def test_answers_that_arrived_are_read_although_nothing_can_be_sent_any_more(
    pair: Callable[[], tuple[socket.socket, socket.socket]], size: int
) -> None:
    ours, theirs = pair()
    pump = Pump(ignore)
    connection = pump.add(ours, "somebody")
    told: list[Connection] = []
    connection.on_close = told.append
    first: list[Any] = []
    second: list[Any] = []
    connection.call(ask(1), first.append)
    pump.flush_all()
    answer = ObjectValue(Value(0, bytes(size)))
    theirs.sendall(encode_frame(codec.encode(answer), 1 | REPLY_BIT))
    theirs.close()  # without having read the question: a reset

    def breaks() -> bool:
        connection.send(ReturnRefs([b"x"]))
        connection.flush()
        return connection.congested

    assert eventually(breaks)
    assert not connection.closed
    connection.call(ask(2), second.append)
    assert pump.wait(lambda: second, LIMIT_S)
    assert first == [answer]
    assert second[0].kind == ErrorKind.UNAVAILABLE
    assert told == [connection]
    pump.stop()


def test_a_socket_that_cannot_send_closes_although_its_peer_stays() -> None:
    ours, theirs = socket.socketpair()
    pump = Pump(ignore)
    connection = pump.add(FullSocket(fileno=ours.detach()), "somebody")
    with theirs:
        theirs.sendall(encode_frame(codec.encode(Ok()), 1 | REPLY_BIT))
        replies: list[Any] = []
        connection.call(ask(1), replies.append)
        assert pump.wait(lambda: connection.closed, LIMIT_S)
        assert replies == [Ok()]
    pump.stop()


def test_a_handler_may_close_its_own_connection() -> None:
    with client_and_server() as (pump, connection, server):
        server.accepted[0].handler = lambda connection, _message, _correlation: connection.close()
        assert pump.call(connection, ask(1), LIMIT_S).kind == ErrorKind.UNAVAILABLE


def test_one_end_does_not_disturb_the_others() -> None:
    with client_and_server() as (pump, connection, server):
        ours, theirs = socket.socketpair()
        server.accepted.append(server.pump.add(theirs, "another client"))
        other = pump.add(ours, "server")
        server.accepted[0].close()
        assert pump.wait(lambda: connection.closed, LIMIT_S)
        assert pump.call(other, ask(4), LIMIT_S).value.data == bytes(4)


def test_a_frame_over_the_limit_ends_the_connection() -> None:
    ours, theirs = socket.socketpair()
    pump = Pump(ignore)
    connection = pump.add(ours, "somebody")
    with theirs:
        theirs.sendall(HEADER.pack(MAX_FRAME_BYTES + 1, 0))
        assert pump.wait(lambda: connection.closed, LIMIT_S)
    pump.stop()


@pytest.mark.parametrize("payload", [b"no message", b"n" * (RECEIVE_BYTES * 2)], ids=["short", "long"])
def test_what_is_no_message_ends_the_connection(payload: bytes) -> None:
    ours, theirs = socket.socketpair()
    pump = Pump(ignore)
    pump.start()
    connection = pump.add(ours, "somebody")
    with theirs:
        theirs.sendall(HEADER.pack(len(payload), 0) + payload)
        assert pump.wait(lambda: connection.closed, LIMIT_S)
    pump.stop()
