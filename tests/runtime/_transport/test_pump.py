"""The pump over real sockets: whoever waits reads, whoever does not is served in the background; nothing is lost."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from runtime._transport import pump as pump_module
from runtime._transport.connection import Connection
from runtime._transport.pump import REST_S, Pump
from runtime._wire.framing import encode_frame
from runtime._wire.handshake import GREETING_BYTES, Handshake
from runtime._wire.messages import codec
from runtime._wire.messages.base import ErrorKind, Ok
from runtime._wire.messages.worker import BorrowRefs, ReturnRefs
from tests.polling import eventually, stays
from tests.runtime._transport.pair import (
    LIMIT_S,
    SECRET,
    Server,
    ask,
    client_and_server,
    dial,
    ignore,
    in_threads,
    tcp_server,
)


def unchanged(items: list[int]) -> bool:
    """Whether nothing is added for a while."""
    before = len(items)
    return stays(lambda: len(items) == before)


# ---------------------------------------------------------------- waiting


def test_what_is_true_already_needs_no_pumping() -> None:
    pump = Pump(ignore)
    assert pump.wait(lambda: True, 0)
    pump.stop()


def test_a_wait_ends_at_its_deadline() -> None:
    with client_and_server() as (pump, _, _server):
        assert not pump.wait(lambda: False, 0.01)


def test_eight_threads_wait_at_once() -> None:
    with client_and_server() as (pump, connection, _):

        def job(number: int) -> None:
            for turn in range(50):
                size = number * 100 + turn
                assert len(pump.call(connection, ask(size), LIMIT_S).value.data) == size

        in_threads(8, job)


def test_a_follower_goes_on_when_the_leader_leaves() -> None:
    with client_and_server() as (pump, connection, server):
        first, second = threading.Event(), threading.Event()
        done: list[int] = []

        def job(number: int) -> None:
            assert pump.wait((first, second)[number].is_set, LIMIT_S)
            done.append(number)

        threads = [threading.Thread(target=job, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for event in (first, second):
            event.set()
            server.accepted[0].send(Ok())
        for thread in threads:
            thread.join(LIMIT_S)
        assert sorted(done) == [0, 1]
        assert pump.call(connection, ask(1), LIMIT_S)


def test_what_a_follower_sends_leaves_while_another_thread_leads() -> None:
    with client_and_server() as (pump, connection, _):
        over = threading.Event()
        leader = threading.Thread(target=lambda: pump.wait(over.is_set, LIMIT_S, look_s=LIMIT_S))
        leader.start()
        assert eventually(lambda: pump.is_led)
        assert len(pump.call(connection, ask(7), LIMIT_S).value.data) == 7  # else only when the leader looks
        over.set()
        pump.wake()
        leader.join(LIMIT_S)
        assert not leader.is_alive()


def test_what_is_sent_without_waiting_leaves_while_another_thread_leads() -> None:
    with client_and_server() as (pump, connection, server):
        over = threading.Event()
        leader = threading.Thread(target=lambda: pump.wait(over.is_set, LIMIT_S, look_s=LIMIT_S))
        leader.start()
        assert eventually(lambda: pump._background.alarm.armed)
        connection.send(ReturnRefs([b"note"]))
        assert eventually(lambda: server.notes == [b"note"])
        over.set()
        pump.wake()
        leader.join(LIMIT_S)
        assert not leader.is_alive()


def test_the_background_thread_leads_after_a_long_wait_of_another_thread() -> None:
    with client_and_server() as (pump, connection, server):
        over = threading.Event()
        leader = threading.Thread(target=lambda: pump.wait(over.is_set, LIMIT_S, look_s=LIMIT_S))
        leader.start()
        assert eventually(lambda: pump._background.alarm.armed)
        over.set()
        pump.wake()
        leader.join(LIMIT_S)
        got: list[Any] = []
        connection.handler = lambda _connection, message, _correlation: got.append(message)
        server.accepted[0].send(Ok())
        assert eventually(lambda: got)


def test_nobody_wakes_when_nothing_is_due() -> None:
    with client_and_server() as (pump, connection, _):
        waits: list[int] = []

        def on_wait() -> float:
            waits.append(1)
            return REST_S

        pump.on_wait = on_wait
        pump.call(connection, ask(0), LIMIT_S)
        assert eventually(lambda: unchanged(waits))
        before = len(waits)
        pump.wake()
        assert eventually(lambda: len(waits) > before)


def test_an_outer_loop_rests_too() -> None:
    with client_and_server() as (pump, _connection, _):
        waits: list[int] = []

        def on_wait() -> float:
            waits.append(1)
            return REST_S

        pump.on_wait = on_wait
        pump.drive_externally()
        assert eventually(lambda: waits and unchanged(waits))


def test_the_background_thread_helps_an_outer_loop_that_is_held_up() -> None:
    with client_and_server() as (pump, connection, server):
        pump.on_wait = lambda: REST_S
        pump.drive_externally()
        got: list[Any] = []
        connection.call(ask(1), got.append)  # nobody calls poll_once
        assert eventually(lambda: got)
        assert server.threads


def test_a_failure_ends_every_wait() -> None:
    with client_and_server() as (pump, connection, server):
        connection.on_close = lambda _: setattr(pump, "failure", RuntimeError("the node is gone"))
        server.accepted[0].close()

        def job(_number: int) -> None:
            with pytest.raises(RuntimeError, match="the node is gone"):
                pump.wait(lambda: False, LIMIT_S)

        in_threads(4, job)


def test_rounds_are_reported() -> None:
    with client_and_server() as (pump, connection, _):
        rounds: list[int] = []

        def on_wait() -> float:
            rounds.append(1)
            return 0.01

        pump.on_wait = on_wait
        pump.call(connection, ask(1), LIMIT_S)
        assert eventually(lambda: rounds)  # the background thread may have led since before


def test_one_round_without_waiting() -> None:
    with client_and_server() as (pump, connection, _):
        got: list[Any] = []
        connection.call(ask(1), got.append)

        def arrived() -> bool:
            pump.poll_once()
            return bool(got)

        assert eventually(arrived)


def test_an_outer_loop_may_drive() -> None:
    with client_and_server() as (pump, connection, _):
        pump.drive_externally()
        got: list[Any] = []
        connection.call(ask(1), got.append)

        def arrived() -> bool:
            pump.poll_once()
            return bool(got)

        assert eventually(arrived)


# ---------------------------------------------------------------- nobody waits


def test_what_is_sent_leaves_though_nobody_waits() -> None:
    with client_and_server() as (_pump, connection, server):
        connection.send(ReturnRefs([b"note"]))
        assert eventually(lambda: server.notes == [b"note"])


def test_what_is_sent_much_later_leaves_too() -> None:
    """After the background thread has gone to a long sleep."""
    with client_and_server() as (pump, connection, server):
        pump.call(connection, ask(0), LIMIT_S)
        assert eventually(lambda: pump._background.alarm.armed or pump._wake.armed)
        connection.send(ReturnRefs([b"note"]))
        assert eventually(lambda: server.notes == [b"note"])


def test_the_background_thread_serves_when_nobody_waits() -> None:
    with client_and_server() as (pump, connection, server):
        pump.call(connection, ask(0), LIMIT_S)
        assert server.threads == {"pump"}


def test_a_callback_runs_in_the_background() -> None:
    with client_and_server() as (_, connection, _server):
        got: list[Any] = []
        connection.call(ask(1), got.append)
        assert eventually(lambda: got)


# ---------------------------------------------------------------- callbacks that fail


def fail(*_: Any) -> Any:
    raise RuntimeError("a callback failed")


def test_a_failing_tick_neither_ends_a_wait_nor_the_background_thread() -> None:
    with client_and_server() as (pump, connection, server):
        pump.on_wait = server.pump.on_wait = fail
        assert (
            pump.call(connection, ask(1), LIMIT_S).value.data == b"\0"
        )  # the server's background thread answers
        got: list[Any] = []
        connection.call(ask(2), got.append)  # nobody waits: our own does
        assert eventually(lambda: got)
        assert pump._thread.is_alive()
        assert server.pump._thread.is_alive()


def test_a_failing_end_of_a_connection_is_not_raised_and_pending_calls_are_told() -> None:
    with client_and_server() as (pump, connection, server):
        connection.on_close = fail
        replies: list[Any] = []
        connection.call(BorrowRefs([]), fail)
        connection.call(BorrowRefs([]), replies.append)
        server.accepted[0].close()
        assert pump.wait(lambda: replies, LIMIT_S)
        assert replies[0].kind == ErrorKind.UNAVAILABLE
        assert eventually(pump._thread.is_alive)


def test_a_failing_source_does_not_starve_the_others() -> None:
    with client_and_server() as (pump, connection, _server):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            pump.watch(ours, fail)
            theirs.sendall(b"x")
            assert pump.call(connection, ask(3), LIMIT_S).value.data == bytes(3)
            with pump.lock:
                pump.forget(ours.fileno())


def test_the_background_thread_survives_what_it_cannot_foresee(monkeypatch: pytest.MonkeyPatch) -> None:
    with client_and_server() as (pump, connection, _server):
        failed = threading.Event()

        def stop_leading() -> None:
            monkeypatch.undo()
            pump.stop_leading()
            failed.set()
            raise RuntimeError("unforeseen")

        monkeypatch.setattr(pump, "stop_leading", stop_leading)
        pump.wake()
        connection.send(Ok())
        got: list[Any] = []
        connection.call(ask(1), got.append)
        assert eventually(lambda: got)
        assert pump._thread.is_alive()


# ---------------------------------------------------------------- listeners


def test_a_unix_listener(tmp_path: pathlib.Path) -> None:
    server, pump = Server(), Pump(ignore)
    path = str(tmp_path / "s")
    server.pump.listen_unix(path, server.accepted.append)
    server.pump.start()
    pump.start()
    connections = [pump.connect_unix(path, "server") for _ in range(5)]
    for number, connection in enumerate(connections):
        assert len(pump.call(connection, ask(number), LIMIT_S).value.data) == number
    assert len(server.accepted) == 5
    pump.stop()
    server.pump.stop()


def test_nobody_listens_on_a_unix_path(tmp_path: pathlib.Path) -> None:
    pump = Pump(ignore)
    with pytest.raises(OSError, match="No such file"):
        pump.connect_unix(str(tmp_path / "nobody"), "nobody")
    pump.stop()


@contextlib.contextmanager
def full_listener(path: pathlib.Path) -> Iterator[socket.socket]:
    """A Unix listener that has no room for another connection before it accepts one."""
    with socket.socket(socket.AF_UNIX) as listener, contextlib.ExitStack() as queued:
        listener.bind(str(path))
        listener.listen(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                waiting = queued.enter_context(socket.socket(socket.AF_UNIX))
                waiting.setblocking(False)
                waiting.connect(str(path))
        yield listener


def test_a_process_that_is_slow_to_accept_is_waited_for_and_gets_all_in_order(tmp_path: pathlib.Path) -> None:
    with client_and_server() as (pump, other, server), full_listener(tmp_path / "s") as listener:
        with pump.lock:  # as its callers do: connecting must not take long
            connection = pump.connect_unix(str(tmp_path / "s"), "slow")
            for number in range(100):
                connection.send(ReturnRefs([number.to_bytes(4, "big")]))
        assert pump.call(other, ask(1), LIMIT_S).value.data == b"\0"
        assert not connection.closed
        accepted = []

        def came() -> bool:
            listener.settimeout(LIMIT_S)
            accepted.append(server.pump.add(listener.accept()[0], "client"))
            return len(accepted) == 2  # the first one was in the queue before

        assert eventually(came)
        assert eventually(lambda: len(server.notes) == 100)
        assert server.notes == [number.to_bytes(4, "big") for number in range(100)]
        assert len(pump.call(connection, ask(3), LIMIT_S).value.data) == 3


def test_a_process_that_never_accepts_counts_as_gone(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pump_module, "CONNECT_TIMEOUT_S", 0.1)
    with client_and_server() as (pump, _other, _server), full_listener(tmp_path / "s"):
        told: list[Connection] = []
        connection = pump.connect_unix(str(tmp_path / "s"), "stuck")
        connection.on_close = told.append
        assert pump.call(connection, ask(1), LIMIT_S).kind == ErrorKind.UNAVAILABLE
        assert told == [connection]


def test_a_tcp_listener_takes_who_knows_the_secret() -> None:
    pump = Pump(ignore)
    pump.start()
    with tcp_server() as (_, port):
        connection = pump.connect_tcp("127.0.0.1", port, SECRET, "server")
        assert len(pump.call(connection, ask(2 << 20), LIMIT_S).value.data) == 2 << 20
        pump.stop()


def test_a_tcp_listener_refuses_who_does_not() -> None:
    pump = Pump(ignore)
    pump.start()
    with tcp_server() as (server, port):
        connection = pump.connect_tcp("127.0.0.1", port, b"guess", "server")
        reply = pump.call(connection, ask(1), LIMIT_S)
        assert reply.kind == ErrorKind.UNAVAILABLE
        assert server.accepted == []
        pump.stop()


def test_a_tcp_listener_reads_no_frame_before_the_proof() -> None:
    with tcp_server() as (server, port):
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.settimeout(LIMIT_S)
            sock.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3)
            with contextlib.suppress(ConnectionResetError):
                while sock.recv(1000):
                    pass
        assert server.accepted == []
        assert server.threads == set()


def test_nobody_listens_on_a_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    pump = Pump(ignore)
    pump.start()
    connection = pump.connect_tcp("127.0.0.1", port, SECRET, "nobody")
    assert pump.call(connection, ask(1), LIMIT_S).kind == ErrorKind.UNAVAILABLE
    pump.stop()


def test_two_processes_connect_to_each_other() -> None:
    with tcp_server() as (first, first_port), tcp_server() as (second, second_port):
        there = first.pump.connect_tcp("127.0.0.1", second_port, SECRET, "second")
        back = second.pump.connect_tcp("127.0.0.1", first_port, SECRET, "first")
        assert first.pump.call(there, ask(1), LIMIT_S).value.data == b"\0"
        assert second.pump.call(back, ask(1), LIMIT_S).value.data == b"\0"


def test_who_comes_before_the_secret_is_known_waits_for_it() -> None:
    pump, server = Pump(ignore), Server()
    pump.start()
    server.pump.start()
    port = server.pump.listen_tcp("127.0.0.1", server.accepted.append)
    connection = pump.connect_tcp("127.0.0.1", port, SECRET, "server")
    got: list[Any] = []
    connection.call(ask(1), got.append)
    assert stays(lambda: not got)
    server.pump.admit(SECRET)
    assert pump.wait(lambda: got, LIMIT_S)
    assert got[0].value.data == b"\0"
    pump.stop()
    server.pump.stop()


def test_what_follows_the_proof_at_once_is_read_as_frames() -> None:
    with tcp_server() as (server, port), dial(port) as sock:
        handshake = Handshake(SECRET, is_client=True)
        sock.sendall(handshake.greeting)
        greeting = b""
        while len(greeting) < GREETING_BYTES:
            greeting += sock.recv(GREETING_BYTES - len(greeting))
        message = codec.encode(ReturnRefs([b"note"]))
        sock.sendall(handshake.proof(greeting) + encode_frame(message))
        assert eventually(lambda: server.notes == [b"note"])


# ---------------------------------------------------------------- the end of a pump


def open_fds() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def test_a_stopped_pump_leaves_no_descriptor(tmp_path: pathlib.Path) -> None:
    before = len(open_fds())
    for number in range(3):
        with client_and_server() as (pump, connection, server):
            server.pump.listen_unix(str(tmp_path / f"s{number}"), server.accepted.append)
            server.pump.listen_tcp("127.0.0.1", server.accepted.append)
            pump.call(connection, ask(1), LIMIT_S)
    assert eventually(lambda: len(open_fds()) == before)


def test_a_pump_that_never_started_can_be_stopped() -> None:
    before = len(open_fds())
    Pump(ignore).stop()
    assert len(open_fds()) == before


def test_stopping_tells_pending_calls() -> None:
    with client_and_server() as (pump, connection, _):
        replies: list[Any] = []
        connection.call(BorrowRefs([]), replies.append)
        pump.stop()
        assert replies[0].kind == ErrorKind.UNAVAILABLE
        pump.stop = lambda: None  # type: ignore[method-assign]


def test_waits_end_with_the_pump() -> None:
    with client_and_server() as (pump, _connection, _):
        errors: list[Exception] = []

        def wait() -> None:
            try:
                pump.wait(lambda: False)
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=wait) for _ in range(4)]
        for thread in threads:
            thread.start()
        assert eventually(lambda: pump.is_led and len(pump.followers) == 3)
        pump.stop()
        for thread in threads:
            thread.join(LIMIT_S)
        assert [type(error) for error in errors] == [ConnectionAbortedError] * 4
        with pytest.raises(ConnectionAbortedError, match="closed"):
            pump.wait(lambda: False)
        pump.poll_once()


def test_a_failure_that_is_set_before_the_end_is_what_waits_raise() -> None:
    pump = Pump(ignore)
    pump.failure = RuntimeError("shut down")
    pump.stop()
    with pytest.raises(RuntimeError, match="shut down"):
        pump.wait(lambda: False)


def test_a_wait_that_is_interrupted_by_the_end_of_the_pump() -> None:
    """As by a signal handler."""
    pump = Pump(ignore)
    before = signal.signal(signal.SIGUSR1, lambda *_: pump.stop())
    main = threading.main_thread().ident
    assert main is not None
    try:
        polls = threading.Thread(
            target=lambda: eventually(lambda: pump.is_led) and signal.pthread_kill(main, signal.SIGUSR1)
        )
        polls.start()
        with pytest.raises(ConnectionAbortedError):
            pump.wait(lambda: False, LIMIT_S)
        polls.join(LIMIT_S)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_waking_a_stopped_pump_touches_no_other_descriptor() -> None:
    pump = Pump(ignore)
    number = pump._wake.fd
    pump.stop()
    read, write = os.pipe()
    os.dup2(write, number) if number not in (read, write) else None
    os.set_blocking(read, False)
    try:
        pump.wake()
        with pytest.raises(BlockingIOError):
            os.read(read, 100)
    finally:
        for fd in {read, write, number}:
            os.close(fd)


def test_a_connection_that_is_made_too_late_is_closed() -> None:
    ours, theirs = socket.socketpair()
    pump = Pump(ignore)
    connection = Connection(pump, None, "late")
    pump.stop()
    connection.attach(ours)
    assert ours.fileno() == -1
    theirs.close()


# ---------------------------------------------------------------- signals


def test_a_signal_waits_while_its_thread_holds_the_lock() -> None:
    pump = Pump(ignore)
    sent_again = threading.Event()
    with pump.lock:
        assert not pump.interruptible(None, sent_again.set)
        elsewhere: list[bool] = []
        in_threads(1, lambda _: elsewhere.append(pump.interruptible(None, sent_again.set)))
        assert elsewhere == [True]
    assert sent_again.wait(LIMIT_S)
    assert pump.interruptible(None, sent_again.set)
    pump.stop()
