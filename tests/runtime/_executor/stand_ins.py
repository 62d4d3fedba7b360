"""Stand-ins for the process around an executor: connections, the pump and the owner's side."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, NoReturn

from runtime._executor.answers import Answers
from runtime._executor.assignment import Assignment
from runtime._executor.calls import Calls
from runtime._executor.cpu_lending import CpuLending
from runtime._executor.endings import Endings
from runtime._executor.main_thread import MainThread
from runtime._executor.receiver import Receiver
from runtime._executor.results import Results
from runtime._owner.context import Execution
from runtime._wire.messages.base import WorkerAddress
from runtime._wire.messages.worker import Push, Value

ADDRESS = WorkerAddress(b"w" * 28, b"n" * 28, "/nowhere/worker.sock")


def push(number: int = 1, method: str = "", key: bytes = b"f", **fields: Any) -> Push:
    """A call without arguments and with one result."""
    return Push(bytes([number]) * 24, key, method, None, [], 1, **fields)


class Peer:
    """A connection that remembers what it was sent."""

    def __init__(self) -> None:
        self.closed = False
        self.congested = False
        self.peer = ADDRESS
        self.sent: list[Any] = []
        self.replies: list[tuple[Any, int]] = []
        self.calls: list[Any] = []

    def send(self, message: Any) -> None:
        self.sent.append(message)

    def reply(self, message: Any, correlation: int) -> None:
        self.replies.append((message, correlation))

    def call(self, request: Any, _callback: Callable[[Any], None]) -> None:
        self.calls.append(request)


class Pump:
    """A pump without sockets. Each wait runs the next of `during_waits`, or fails when none is left."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.flushed = 0
        self.woken = 0
        self.asked: list[Any] = []
        self.during_waits: list[Callable[[], object]] = []
        self.may_interrupt = True

    def flush_all(self) -> None:
        self.flushed += 1

    def kick(self) -> None:
        """Nothing polls."""

    def wake(self) -> None:
        self.woken += 1

    def call(self, connection: Peer, request: Any, _timeout_s: float) -> None:
        self.asked.append(request)

    def interruptible(self, _frame: Any, _retry: Callable[[], None]) -> bool:
        return self.may_interrupt

    def wait(self, ready: Callable[[], Any], timeout_s: float | None = None, look_s: float = 0.0) -> bool:
        while not ready():
            if not self.during_waits:
                if timeout_s is None:
                    raise AssertionError("this waits for ever")
                return False
            self.during_waits.pop(0)()
        return True


class Functions:
    """What callers have sent, by key."""

    def __init__(self) -> None:
        self.max_calls: dict[bytes, int] = {}
        self.known: dict[bytes, Any] = {}

    def name(self, key: bytes) -> str:
        return f"module.{key.decode()}"

    def load(self, key: bytes, class_name: str = "") -> Any:
        return self.known[key]


class Owner:
    """An owner's side whose values are the errors themselves and whose arguments are made up."""

    def __init__(self) -> None:
        self.functions = Functions()
        self.forked = False
        self.released: list[Any] = []
        self.needed = False
        self.arguments: dict[bytes, Any] = {}
        self.errors: list[BaseException] = []
        self.cancelled: list[tuple[bytes, bool]] = []
        self.sent_back: list[Push] = []
        self.unknown: list[Any] = []
        self.registered: list[Callable[[], None]] = []

    def drain(self) -> None:
        self.released.clear()

    def unpack(self, push: Push, waits: bool = True) -> Any:
        found = self.arguments.get(push.task_id, ((), {}, []))
        if isinstance(found, BaseException):
            raise found
        return found

    unpack_or_send_back = unpack

    def send_back(self, _connection: Any, push: Push, _error: Exception) -> None:
        self.sent_back.append(push)

    def error_value(self, error: BaseException) -> Value:
        self.errors.append(error)
        return Value(1, repr(error).encode())

    def hold(self, entries: Iterable[Any]) -> None:
        """Not counted."""

    def release(self, entry: Any) -> None:
        """Not counted."""

    def unregistered(self, entries: Iterable[Any]) -> list[Any]:
        return [entry for entry in entries if entry in self.unknown]

    def when_registered(self, _entries: Iterable[Any], callback: Callable[[], None]) -> None:
        self.registered.append(callback)

    def when_all_registered(self, callback: Callable[[], None]) -> None:
        callback()

    def is_needed(self) -> bool:
        return self.needed

    def report_tasks(self) -> None: ...

    def cancel_children(self, task_id: bytes, force: bool) -> None:
        self.cancelled.append((task_id, force))


class Exited(BaseException):
    """The process would have ended."""


class SafeEndings(Endings):
    """Ends no process."""

    def exit(self, status: int | None = None) -> NoReturn:
        self.life.exit(status)
        raise Exited(self.life.reason, self.life.status)

    def abort(self, reason: str) -> NoReturn:
        raise Exited(reason, 1)


class SafeMain(MainThread):
    """Interrupts nothing, and remembers what it would have."""

    def __init__(self, pump: Any, thread: threading.Thread) -> None:
        self.thread = thread
        self.running: Execution | None = None
        self._target: Execution | None = None
        self._held = 0
        self.interrupted: list[Execution] = []

    def interrupt(self, running: Execution) -> None:
        self.interrupted.append(running)


class Concurrent:
    """Runs no call, and remembers what it was asked."""

    def __init__(self) -> None:
        self.submitted: list[Push] = []
        self.cancelled: list[bytes] = []
        self.dropped = 0
        self.looked = 0
        self.finished: list[Any] = []

    def submit(self, _connection: Any, push: Push, _running: Execution) -> None:
        self.submitted.append(push)

    def cancel(self, _connection: Any, task_id: bytes) -> None:
        self.cancelled.append(task_id)

    def drop_waiting(self) -> None:
        self.dropped += 1

    def exit_if_idle(self) -> None:
        self.looked += 1

    def finish(self, last: Any) -> None:
        self.finished.append(last)
        last.close()


class Parts:
    """The parts of an executor, wired, around stand-ins."""

    def __init__(self, endings: type[Endings] = SafeEndings) -> None:
        self.pump = Pump()
        self.agent = Peer()
        self.links: Any = SimpleNamespace(
            pump=self.pump,
            lock=self.pump.lock,
            agent=self.agent,
            address=ADDRESS,
            session=SimpleNamespace(node_host="host"),
            wait=self.pump.wait,
        )
        self.owner: Any = Owner()
        self.assignment = Assignment(self.owner.functions)
        self.calls = Calls(self.assignment.execution)
        self.main = SafeMain(self.pump, threading.current_thread())
        self.results = Results(self.links, self.owner)
        self.endings = endings(self.links, self.owner, self.calls, self.assignment)
        self.answers = Answers(
            self.links, self.owner, self.calls, self.assignment, self.results, self.endings
        )
        self.lending = CpuLending(self.links, self.calls, self.assignment, self.main)
        self.receiver = Receiver(
            self.owner,
            self.calls,
            self.assignment,
            self.main,
            self.lending,
            self.results,
            self.answers,
            self.endings,
        )

    def tell(self, peer: Any, message: Any, correlation: int = 0) -> None:
        """Delivers a message to the receiver."""
        self.receiver.handlers()[type(message)](peer, message, correlation)
