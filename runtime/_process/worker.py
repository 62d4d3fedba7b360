"""The composition of a worker."""

from __future__ import annotations

from runtime._executor.executor import Executor
from runtime._system.process_title import ProcessTitle
from runtime._transport.connection import Connection
from runtime._wire.messages.node import Register, ReopenOutput

from .core_worker import Core
from .output_files import reopen
from .owner_side import OwnerSide


class Worker(Core):
    """A connected worker process, and what runs its calls. Made on the main thread. See `Core`.

    Args:
        title: shows what runs.
    """

    def __init__(
        self, agent_path: str, register: Register, worker_id: bytes, host: str, title: ProcessTitle
    ) -> None:
        super().__init__(agent_path, register, worker_id, host)
        self.calls = Executor(self.links, OwnerSide(self), title=title)

    def serve(self) -> None:
        """Begins to serve, in the background as well. The main thread runs calls by `calls.run_forever`."""
        self.start({**self.calls.handlers(), ReopenOutput: _on_reopen}, self.calls)


def _on_reopen(_connection: Connection, message: ReopenOutput, _correlation: int) -> None:
    reopen(message.path, message.is_error_stream)
