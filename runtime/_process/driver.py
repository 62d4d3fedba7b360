"""The composition of a driver."""

from __future__ import annotations

import os
from collections.abc import Callable

from runtime._core.ids import TaskIds
from runtime._transport.connection import Connection
from runtime._wire.messages.node import DriverLogs, Register

from .core_worker import Core


class Driver(Core):
    """A connected program.

    Args:
        agent_path: Unix socket of the node agent.
        register: what to say to it; the addresses are filled in.
        make_ids: see `Core`.

    Raises: see `Core`.
    """

    def __init__(
        self, agent_path: str, register: Register, make_ids: Callable[[bytes], TaskIds] | None = None
    ) -> None:
        super().__init__(agent_path, register, os.urandom(28), make_ids=make_ids)

    def serve(self, print_logs: Callable[[DriverLogs], None] | None) -> None:
        """Begins to serve.

        Args:
            print_logs: takes what the job's workers have printed, under the lock; None: nobody wants to see it.
        """

        def on_logs(_connection: Connection, message: DriverLogs, _correlation: int) -> None:
            if print_logs is not None:
                print_logs(message)

        self.start({DriverLogs: on_logs})
