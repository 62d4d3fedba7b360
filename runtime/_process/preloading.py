"""What a zygote imports for its workers, and whether it can be forked afterwards.

A fork copies one thread, and no connection to a device. So a process that has more threads, or has opened an
accelerator, is not forked: its workers import the modules themselves.
"""

from __future__ import annotations

import fcntl
import importlib
import os
import select
import signal
import socket
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/", "/dev/accel", "/dev/neuron", "/dev/davinci")
"""How the paths of accelerators begin. A driver's first call opens them (CUDA: /dev/nvidiactl)."""


_NO_THREADS = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""Variables that keep libraries from starting threads when they are imported: Arrow's jemalloc, and so pandas."""


class Preloaded(NamedTuple):
    """What came of the imports.

    Attributes:
        refusal: why no worker must be forked; "" if they succeeded.
        missing: modules that are not here, with the reason: the workers may find them in folders of their job.
    """

    refusal: str
    missing: dict[str, str]


def preload(modules: Sequence[str], ray_alias: bool) -> Preloaded:
    """Imports modules.

    Args:
        ray_alias: `import ray` means this engine.
    """
    if ray_alias:
        importlib.import_module("runtime.compat.ray").install()
    missing: dict[str, str] = {}
    for name in modules:
        try:
            with _without_threads():
                importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                return Preloaded(_failed(name), missing)
            missing[name] = str(error)
        except BaseException:
            return Preloaded(_failed(name), missing)
    return Preloaded("", missing)


def unfit() -> str:
    """Why this process must not be forked; "" if it may be."""
    if thread_count() > 1:
        _fork_for_nothing()  # libraries that see to forks themselves end their threads (OpenBLAS)
    threads = thread_count()
    if threads > 1:
        return f"it has {threads} threads after the imports"
    devices = open_devices()
    if devices:
        return f"the imports opened {', '.join(devices)}"
    return ""


def thread_count() -> int:
    """Threads of this process, also those of native libraries."""
    return len(os.listdir("/proc/self/task"))


def open_devices() -> list[str]:
    """Accelerators that this process has open."""
    paths = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            paths.add(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:
            continue  # that of the listing itself
    return sorted(path for path in paths if path.startswith(DEVICES))


@contextmanager
def ended_by(connection: socket.socket) -> Iterator[None]:
    """While the block runs, the kernel ends this process as soon as anything comes over the connection, its end too.
    The block may hang in a module's code, where no signal handler of Python runs."""
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(connection, fcntl.F_SETOWN, os.getpid())
    flags = fcntl.fcntl(connection, fcntl.F_GETFL)
    fcntl.fcntl(connection, fcntl.F_SETFL, flags | os.O_ASYNC)
    if select.select([connection], [], [], 0)[0]:
        os._exit(1)
    try:
        yield
    finally:
        fcntl.fcntl(connection, fcntl.F_SETFL, flags)


@contextmanager
def _without_threads() -> Iterator[None]:
    ours = {name: value for name, value in _NO_THREADS.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)


def _failed(name: str) -> str:
    return f"importing {name} failed: {traceback.format_exc().strip()}"


def _fork_for_nothing() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
