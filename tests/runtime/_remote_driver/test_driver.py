"""A driver process logs why it ends, and tells its program of a failure."""

from __future__ import annotations

import logging
import socket
import threading

import pytest

from runtime._remote_driver import frames, messages
from runtime._remote_driver.driver import serve
from runtime._remote_driver.requests import rebuilt
from runtime._remote_driver.stream import Stream

LOG = "runtime._remote_driver"


def test_it_logs_that_the_server_ended(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOG)
    theirs, ours = socket.socketpair()
    with ours:
        theirs.close()
        assert serve(ours, "")
    assert "ending: the server ended" in caplog.text


def test_an_unexpected_error_is_logged_and_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOG)
    theirs, ours = socket.socketpair()
    result: list[bool] = []
    thread = threading.Thread(target=lambda: result.append(serve(ours, "")))
    with theirs, ours:
        peer = Stream()
        theirs.sendall(frames.relayed(1, frames.ATTACHED))
        theirs.sendall(frames.relayed(1, frames.ENVELOPE, frames.encode([peer.acknowledgement()])))
        theirs.sendall(frames.relayed(1, frames.ENVELOPE, b"\x12\x00"))
        thread.start()
        theirs.settimeout(60)
        incoming = frames.RelayDecoder()
        told: list[messages.AnyMessage] = []
        is_finished = False
        while data := theirs.recv(65536):
            for _, kind, payload in incoming.feed(data):
                is_finished |= kind == frames.FINISHED
                told += filter(None, map(peer.receive, frames.decode(payload)))
        theirs.close()
        thread.join(60)
    assert is_finished
    assert result == [False]
    [ended] = told
    assert isinstance(ended, messages.Ended)
    assert "EnvelopeError" in str(rebuilt(ended.error))
    assert "Traceback" in caplog.text
