"""The life of a worker process: from the fork to the last task."""

from __future__ import annotations

import functools
import importlib
import io
import os
import sys
from collections.abc import Callable
from typing import Any

import cloudpickle  # noqa: F401 - functions need it to be unpickled; the zygote imports it once for all workers

from runtime._executor.assignment import Assignment
from runtime._executor.set_up import set_up
from runtime._system import stacks
from runtime._system.process_title import ProcessTitle
from runtime._wire.messages.base import WorkerAddress
from runtime._wire.messages.node import Register, SetUp

from . import core_worker, output_files
from .logging_config import LoggingConfig
from .worker import Worker

NAME_MARK = "\x01name:"
"""A line that starts so tells the log monitor whose output follows; nobody else sees it."""


class _NamedStream(io.TextIOWrapper):
    """Standard output or error of a worker: marks whose lines follow."""

    assignment: Assignment | None = None
    _shown = ""

    def write(self, text: str) -> int:
        name = self.assignment.current_name if self.assignment is not None else ""
        if name != self._shown:
            self._shown = name
            super().write(f"{NAME_MARK}{name}\n")
        return super().write(text)

    def close(self) -> None:
        """The stream is the process's, for the tasks to come as well: closing it only flushes."""
        self.flush()


def prepare() -> Callable[[dict[str, Any]], None]:
    """Makes, in the zygote, what its workers can share. Returns what each of them runs; see `run`."""
    return functools.partial(run, ProcessTitle())


def run(title: ProcessTitle, start: dict[str, Any]) -> None:
    """Serves the node agent until the process ends. Called in a fresh fork, with one thread.

    Args:
        title: the zygote's. A fork has its arguments at the same address.
        start: what the agent says about the worker.
    """
    stacks.register("worker")
    streams = []
    for name, fd in (("stdout", 1), ("stderr", 2)):
        own = os.dup(fd)
        output_files.add_descriptor(own, fd == 2)
        stream = _NamedStream(
            open(own, "wb", buffering=0),  # noqa: SIM115 (our own: a task may close 1 and 2)
            encoding="utf-8",
            errors="backslashreplace",
            line_buffering=True,
            write_through=True,
        )
        setattr(sys, name, stream)
        streams.append(stream)
    worker_id = bytes.fromhex(start["worker_id"])
    register = Register(
        False,
        WorkerAddress(worker_id, b"", ""),
        os.getpid(),
        startup_token=start["startup_token"],
    )
    core = Worker(start["agent_socket"], register, worker_id, start["node_host"], title)
    core_worker.set_current(core)
    for stream in streams:
        stream.assignment = core.calls.assignment
    if core.job_settings.get("ray_alias"):
        importlib.import_module("runtime.compat.ray").install()
    core.serve()
    logging_config = core.job_settings.get("logging")
    if logging_config is not None:
        LoggingConfig.from_dict(logging_config)._apply()
    if start.get("preload") or start.get("setup_hook"):
        error = set_up(core.links, start.get("preload", ()), start.get("setup_hook", ""))
        core.agent.send(SetUp(error))  # after an error the agent ends us
        core.pump.flush_all()
    core.calls.run_forever()
