"""When the other side of a connection counts as silent."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from clusterctl.shell import watched
from clusterctl.shell.watched import Silent, Watched


class Peer:
    """A stream, and the clock that stands while it is used."""

    def __init__(self) -> None:
        self.now = 0.0
        self.says = b""
        self.reads = True

    def monotonic(self) -> float:
        return self.now

    def recv(self, size: int, /) -> bytes:
        if not self.says:
            raise TimeoutError
        said, self.says = self.says, b""
        return said

    def send(self, data: bytes, /) -> int:
        if not self.reads:
            raise TimeoutError
        return len(data)

    def settimeout(self, timeout: float | None, /) -> None: ...
    def shutdown(self, how: int, /) -> None: ...
    def close(self) -> None: ...


class Connection:
    """One that is read from and sent over in turns of a second, until it fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.peer = Peer()
        monkeypatch.setattr(watched, "time", SimpleNamespace(monotonic=self.peer.monotonic))
        self.asked: list[float] = []
        self._watched = Watched(self.peer, "m")
        self._watched.watch(lambda: self.asked.append(self.peer.now))

    def go_on(self, until: float, is_sending: bool = False) -> None:
        while self.peer.now < until:
            self.peer.now += 1.0
            if is_sending:
                try:
                    self._watched.send(b"data")
                except TimeoutError:
                    pass
            try:
                self._watched.recv(1)
            except TimeoutError:
                pass


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Connection:
    return Connection(monkeypatch)


def test_whoever_is_quiet_is_asked_and_has_time_to_answer(connection: Connection) -> None:
    connection.go_on(44.0)
    assert connection.asked == [15.0]
    with pytest.raises(Silent):
        connection.go_on(45.0)


def test_whoever_answers_goes_on(connection: Connection) -> None:
    connection.go_on(44.0)
    connection.peer.says = b"yes"
    connection.go_on(88.0)
    assert connection.asked == [15.0, 60.0]


def test_whoever_reads_nothing_and_says_nothing_is_silent(connection: Connection) -> None:
    connection.peer.reads = False
    connection.go_on(44.0, is_sending=True)
    assert connection.asked == [15.0]
    with pytest.raises(Silent):
        connection.go_on(45.0, is_sending=True)


def test_whoever_says_something_is_not_silent_however_little_it_reads(connection: Connection) -> None:
    connection.peer.reads = False
    for until in (40.0, 80.0, 120.0):
        connection.go_on(until, is_sending=True)
        connection.peer.says = b"data"
    connection.go_on(121.0, is_sending=True)
    assert connection.asked == [15.0, 56.0, 96.0]
