"""The connections of a process: registration, peers, calls of the agent, and what the loss of each means."""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from runtime import exceptions
from runtime._owner.links import Links
from runtime._transport.connection import Connection
from runtime._transport.dispatch import Dispatcher
from runtime._transport.pump import Pump
from runtime._wire.messages.base import ErrorKind, ErrorReply, WorkerAddress
from runtime._wire.messages.control import KvGet, KvPut, KvValue
from runtime._wire.messages.node import NodeDied, Register, Registered
from runtime._wire.messages.worker import Hello
from tests.polling import eventually

NODE, OTHER_NODE = b"n" * 28, b"x" * 28
WAIT_S = 60.0


class Agent:
    """The agent's side: answers on the background thread of a pump of its own."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.path = str(folder / "agent")
        self.refuses = False
        self.connections: list[Connection] = []
        self.pump = Pump(self._on_message)
        self.pump.listen_unix(self.path, self.connections.append)
        self.pump.start()

    def _on_message(self, connection: Connection, message: Any, correlation: int) -> None:
        if isinstance(message, Register):
            reply: Any = Registered(NODE, "127.0.0.1", b"job1", "", "", "", "", "", b"secret", "", 0)
            if self.refuses:
                reply = ErrorReply(ErrorKind.INVALID, "the job has ended")
        elif isinstance(message, KvGet):
            reply = KvValue(b"value of " + message.key)
        else:
            reply = ErrorReply(ErrorKind.TIMEOUT, "too late")
        connection.reply(reply, correlation)


class Process:
    """A process with nothing but its links."""

    def __init__(self, agent: Agent, name: bytes) -> None:
        self.dispatcher = Dispatcher()
        self.pump = Pump(self.dispatcher.dispatch)
        self.agent_lost = threading.Event()
        self.lost: list[Connection] = []
        register = Register(True, WorkerAddress(b"", b"", ""), 0)
        self.links = Links(self.pump, agent.path, register, name * 28, "", self.agent_lost.set)
        self.links.on_peer_lost = (self._fail, self.lost.append)
        self.dispatcher.serve({Hello: self.links.on_hello, NodeDied: self.links.on_node_died})
        self.pump.start()

    def _fail(self, _connection: Connection) -> None:
        raise RuntimeError("one that fails keeps none of the others from hearing")


@pytest.fixture
def agent(tmp_path: pathlib.Path) -> Iterator[Agent]:
    agent = Agent(tmp_path)
    yield agent
    agent.pump.stop()


@pytest.fixture
def pair(agent: Agent) -> Iterator[tuple[Process, Process]]:
    one, two = Process(agent, b"1"), Process(agent, b"2")
    yield one, two
    one.links.close()
    two.links.close()


def meet(pair: tuple[Process, Process]) -> tuple[Connection, Connection]:
    """Connects the first to the second. Returns the two ends."""
    one, two = pair
    with one.links.lock:
        ours = one.links.peer(two.links.address)
        assert ours is not None
        assert one.links.peer(two.links.address) is ours
    assert eventually(lambda: len(two.links.peers()) == 1)
    return ours, two.links.peers()[0]


def test_the_agent_says_where_we_are(pair: tuple[Process, Process]) -> None:
    links = pair[0].links
    assert links.address.node_id == NODE
    assert links.address.host == "127.0.0.1"
    assert links.address.port > 0
    assert links.session.job_id == b"job1"


def test_an_agent_that_refuses_or_is_not_there(agent: Agent, tmp_path: pathlib.Path) -> None:
    agent.refuses = True
    with pytest.raises(exceptions.RaySystemError, match="refused this process: the job has ended"):
        Process(agent, b"1")
    agent.path = str(tmp_path / "nobody")
    with pytest.raises(exceptions.RaySystemError, match="does not answer"):
        Process(agent, b"1")
    assert [path.name for path in tmp_path.iterdir()] == ["agent"]  # no socket is left


def test_calls_of_the_agent(pair: tuple[Process, Process]) -> None:
    links = pair[0].links
    assert links.ask(KvGet("space", b"key"), WAIT_S).value == b"value of key"
    put = KvPut("space", b"key", b"value", True)
    assert links.call_agent(put, WAIT_S) == ErrorReply(ErrorKind.TIMEOUT, "too late")
    with pytest.raises(exceptions.GetTimeoutError, match="too late"):
        links.ask(put, WAIT_S)


def test_both_ends_know_whom_they_speak_to(pair: tuple[Process, Process]) -> None:
    ours, theirs = meet(pair)
    assert ours.peer == pair[1].links.address
    assert theirs.peer == pair[0].links.address
    with pair[1].links.lock:
        assert pair[1].links.peer(pair[0].links.address) is theirs  # no second connection


def test_a_lost_peer_is_reported_to_all_and_forgotten(pair: tuple[Process, Process]) -> None:
    ours, theirs = meet(pair)
    theirs.close()
    assert eventually(lambda: pair[0].lost == [ours])
    assert pair[0].links.peers() == []


def test_peers_of_a_dead_node_are_lost(pair: tuple[Process, Process]) -> None:
    ours, _ = meet(pair)
    links = pair[0].links
    with links.lock:
        links.on_node_died(links.agent, NodeDied(OTHER_NODE), 0)
        assert not ours.closed
        links.on_node_died(links.agent, NodeDied(NODE), 0)
        assert ours.closed


def test_nobody_is_there(pair: tuple[Process, Process], tmp_path: pathlib.Path) -> None:
    links = pair[0].links
    with links.lock:
        assert links.peer(WorkerAddress(b"g" * 28, NODE, str(tmp_path / "gone"))) is None
        assert links.peer(pair[1].links.address, connect=False) is None


def test_the_loss_of_the_agent(agent: Agent, pair: tuple[Process, Process]) -> None:
    for connection in agent.connections:
        connection.close()
    assert all(process.agent_lost.wait(WAIT_S) for process in pair)


def test_after_the_end_nothing_begins(agent: Agent) -> None:
    process = Process(agent, b"1")
    process.links.check()
    process.links.close()
    assert not process.agent_lost.is_set()
    with pytest.raises(exceptions.RaySystemError, match="was shut down"):
        process.links.check()
    with pytest.raises(exceptions.RaySystemError):
        process.links.call_agent(KvGet("space", b"key"), WAIT_S)


def test_a_task_that_waits_lends_its_cpus(pair: tuple[Process, Process]) -> None:
    links = pair[0].links
    waits: list[float | None] = []

    class Lender:
        lends = True

        def check_event_loop(self) -> None: ...

        def may_block(self) -> bool:
            return self.lends

        def blocking_wait(self, _ready: Any, timeout_s: float | None) -> bool:
            waits.append(timeout_s)
            return True

    links.lending = Lender()
    assert links.wait(lambda: True, 1.0)
    assert waits == []  # nothing to wait for
    assert links.wait(lambda: False, 2.0)
    assert waits == [2.0]
    links.lending.lends = False
    assert not links.wait(lambda: False, 0.0)
