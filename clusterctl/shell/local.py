"""The shell of a local machine: processes of this host with the machine's environment."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from autoscaler.provider import CommandResult, CommandTimedOut, Streams

from . import scripts, terminal
from .forwarding import OnTunnel
from .piping import Feeder, Output

_LOOK_S = 0.05
"""So often it is looked whether a command has ended whose output a daemon keeps open."""


class LocalShell:
    """See `autoscaler.provider.Shell`. `home` is where relative paths and `~` begin."""

    def __init__(self, home: str, environment: Mapping[str, str]) -> None:
        self._home = home
        self._environment = dict(environment)

    def run(
        self,
        command: str,
        *,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        on_output: Callable[[str], None] | None = None,
        stdin: Iterable[bytes] | None = None,
    ) -> CommandResult:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        output = Output(on_output)
        with (
            _input(stdin) as descriptor,
            self._started(command, env, timeout_s, descriptor, subprocess.PIPE, subprocess.STDOUT) as process,
        ):
            _collect(process, deadline, output)
            status = process.wait()
        return CommandResult(status, output.end())

    def pipe(
        self,
        command: str,
        streams: Streams,
        *,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> int:
        stdin = subprocess.DEVNULL if streams.stdin is None else streams.stdin
        with self._started(command, env, timeout_s, stdin, streams.stdout, streams.stderr) as process:
            return process.wait(timeout_s)

    def interactive(self, command: str | None = None, *, env: Mapping[str, str] | None = None) -> int:
        log_in = [shutil.which("bash") or "/bin/sh", "-i"]
        arguments = log_in if command is None else ["/bin/sh", "-c", command]
        return terminal.join(arguments, self._home, {**self._environment, **(env or {})})

    @contextlib.contextmanager
    def forward(self, port: int, on_tunnel: OnTunnel | None = None) -> Iterator[int]:
        yield port  # the machine's loopback is the host's

    def close(self) -> None:
        pass  # nothing is kept open

    @contextlib.contextmanager
    def _started(
        self,
        command: str,
        env: Mapping[str, str] | None,
        timeout_s: float | None,
        stdin: int,
        stdout: int,
        stderr: int,
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A process group for a command; all of it is killed when the body fails."""
        with subprocess.Popen(
            ["/bin/sh", "-c", scripts.evaluate()],
            cwd=self._home,
            env={**self._environment, **(env or {}), scripts.VARIABLE: command},
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        ) as process:
            try:
                yield process
            except BaseException as error:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                if isinstance(error, subprocess.TimeoutExpired):
                    raise CommandTimedOut(
                        f"the command did not end within {timeout_s} s: {command}"
                    ) from None
                raise


@contextlib.contextmanager
def _input(data: Iterable[bytes] | None) -> Iterator[int]:
    """A descriptor for a process to read `data` from while this lasts.

    A socket, not a pipe: at the end it is shut, also when a daemon that the process left behind still holds it.
    """
    if data is None:
        yield subprocess.DEVNULL
        return
    ours, theirs = socket.socketpair()
    with ours, theirs:

        def shut() -> None:
            with contextlib.suppress(OSError):
                ours.shutdown(socket.SHUT_RDWR)

        with Feeder(data, shut) as feeder:
            feeder.start(ours.sendall, lambda: ours.shutdown(socket.SHUT_WR))
            yield theirs.fileno()


def _collect(process: subprocess.Popen[bytes], deadline: float | None, output: Output) -> None:
    """Reads until the command ended.

    It does not wait for the end of the stream: a daemon that the command left behind may hold that open for
    ever.

    Raises:
        subprocess.TimeoutExpired: it does not end by the deadline, on the monotonic clock.
    """
    assert process.stdout is not None
    descriptor = process.stdout.fileno()
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    is_closed = False
    while deadline is None or time.monotonic() < deadline:
        has_ended = process.poll() is not None  # before the look: then all that it wrote is there
        if not is_closed and poll.poll(0 if has_ended else _LOOK_S * 1000):
            data = os.read(descriptor, 65536)
            output.take(data)
            is_closed = not data
        elif has_ended:
            return
        elif is_closed:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_LOOK_S)
    raise subprocess.TimeoutExpired(process.args, 0)
