"""The shell of a machine that is entered by SSH. All shells of a machine share one connection (`connections`).

What runs there is sent as a script on the command's input, never as arguments, so the machine's log-in shell and its
process list do not show it (`hidden`). The script's process leads a process group, so that all of it can be killed.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, cast

from autoscaler.provider import CommandResult, CommandTimedOut, ShellError, ShellTimedOut, Streams
from clusterctl import settings

from . import archive, hidden, terminal
from .channel import Broken, Channel
from .connections import CONNECT_S, CONNECTIONS
from .feeding import Feeder
from .forwarding import OnTunnel, forwarded
from .output import Output
from .piping import LocalInput, RemoteErrors, write_all
from .running import Late, Running
from .target import SshTarget

_BLOCK = 65536
_STALL_S = 60.0
"""A copy that makes no progress for so long has failed."""
_BEGIN_S = 60.0
"""What an sshd and the user's log-in scripts may take before a command runs."""
_KILL_S = 5.0
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class SshShell:
    """See `autoscaler.provider.Shell`. Relative paths and `~/` begin in the user's home directory.

    Args:
        environment: added to that of everything that runs.
        guard: a script that runs before every other, which does not run when it exits.
    """

    def __init__(
        self, target: SshTarget, environment: Mapping[str, str] | None = None, guard: str = ""
    ) -> None:
        self._target = target
        self._guard = guard
        self._environment = dict(environment or {})

    @property
    def target(self) -> SshTarget:
        """The machine, and how it is entered."""
        return self._target

    def run(
        self,
        command: str,
        *,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        on_output: Callable[[str], None] | None = None,
        stdin: Iterable[bytes] | None = None,
    ) -> CommandResult:
        source = "</dev/null" if stdin is None else ""
        script = self._exports(env) + f"{hidden.in_shell(command)} {source} 2>&1\n"
        feeder: Feeder | None = None
        try:
            with self._started(script, timeout_s) as running:
                if stdin is not None:
                    feeder = Feeder(stdin, running.channel.sendall, running.channel.shutdown_write)
                    feeder.start()
                output = Output(on_output)
                status = running.finish(output.take)
        except Late:
            raise CommandTimedOut(f"the command did not end within {timeout_s} s: {command}") from None
        finally:
            if feeder is not None:
                feeder.end()  # the channel is closed
        if feeder is not None:
            feeder.check()
        return CommandResult(status, output.end())

    def pipe(
        self,
        command: str,
        streams: Streams,
        *,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> int:
        errors = RemoteErrors(streams.stderr)
        source = "</dev/null" if streams.stdin is None else ""
        script = self._exports(env) + errors.around(f"{hidden.in_shell(command)} {source}")
        feeder: Feeder | None = None
        local = None if streams.stdin is None else LocalInput(streams.stdin)
        try:
            with self._started(script, timeout_s) as running:
                errors.start(running.channel)
                if local is not None:
                    channel = running.channel
                    feeder = Feeder(local.blocks(), channel.sendall, channel.shutdown_write)
                    feeder.start()
                status = running.finish(lambda data: write_all(streams.stdout, data))
                errors.finish()
        except Late:
            raise CommandTimedOut(f"the command did not end within {timeout_s} s: {command}") from None
        finally:
            if local is not None:
                local.stop()
                if feeder is not None:
                    feeder.end()  # the channel is closed
                local.close()
        if feeder is not None:
            feeder.check()
        return status

    def ask(self, script: str, *, env: Mapping[str, str] | None = None, timeout_s: float) -> CommandResult:
        """Runs a script of this program's own in the shell that reads it, which then waits for the next one. So it must
        leave nothing running that writes to its output, nothing changed that a log-in looks at, and not mind that `$$`
        is that shell's."""
        output = Output(None)
        try:
            with self._started(self._exports(env) + script, timeout_s, is_asked=True) as running:
                status = running.finish(output.take)
        except Late:
            raise ShellTimedOut(f"{self._target} did not answer within {timeout_s} s") from None
        return CommandResult(status, output.end())

    def put(self, local: str, remote: str) -> None:
        target = _path(remote)
        parent, name = os.path.split(target)
        unpack = archive.unpacking(shlex.quote(parent))
        if os.path.isdir(local):
            quoted, mode = shlex.quote(target), f"{archive.mode_of(local):o}"
            make = f"mkdir -p {shlex.quote(parent)} && {{ [ -d {quoted} ] || mkdir -m {mode} {quoted}; }}"
            unpack = f"{make} && {archive.unpacking(quoted)}"
        script = f"{self._exports(None)}{{ {unpack}; }} 2>&1\n"
        with self._copying(f"copying {local} to {remote}"), self._started(script, None, _STALL_S) as running:
            with contextlib.suppress(Broken):  # its words say why
                archive.pack(local, name, cast(IO[bytes], _ToMachine(running.channel)))
            running.channel.shutdown_write()
            running.expect_success()

    def get(self, remote: str, local: str) -> None:
        target = _path(remote)
        parent, name = os.path.split(target)
        quoted, base = shlex.quote(target), shlex.quote(name)
        script = (
            f"if [ -d {quoted} ]; then tar -cf - -C {quoted} .; "
            f"else tar -chf - -C {shlex.quote(parent)} -- {base}; fi\n"
        )
        os.makedirs(os.path.dirname(local.rstrip("/")) or "/", exist_ok=True)
        with self._copying(f"copying {remote} from"), self._started(script, None, _STALL_S) as running:
            with contextlib.suppress(tarfile.ReadError):  # its words say why
                archive.unpack(io.BufferedReader(running), local)
            running.expect_success()

    def interactive(self, command: str | None = None, *, env: Mapping[str, str] | None = None) -> int:
        run = 'exec "${SHELL:-/bin/sh}" -i'
        exports = self._exports(env)
        if command:
            run = f"exec /bin/sh -c {shlex.quote(hidden.evaluate())}"
            exports += self._exports({hidden.VARIABLE: command})
        with (
            self._left_there(exports) as file,
            CONNECTIONS.session(self._target, time.monotonic() + CONNECT_S) as channel,
        ):
            begin = f"exec /bin/sh -c {shlex.quote(f'. {file}; rm -f {file}; {run}')}"
            begin_by = time.monotonic() + _BEGIN_S
            try:
                channel.terminal(settings.TERMINAL.get() or "dumb", *terminal.window_size(), begin_by)
                channel.execute(begin, begin_by)
            except TimeoutError:
                raise self._not_begun() from None
            terminal.connect(_RemoteTerminal(channel))
            status = channel.exit_status(None)  # a program may close its terminal and go on
            return status if status >= 0 else 255

    @contextlib.contextmanager
    def forward(self, port: int, on_tunnel: OnTunnel | None = None) -> Iterator[int]:
        with forwarded(
            lambda: CONNECTIONS.tunnel(self._target, "127.0.0.1", port, time.monotonic() + CONNECT_S),
            on_tunnel=on_tunnel,
        ) as local:
            yield local

    def close(self) -> None:
        pass  # the connection is kept for the next shell

    # -- inside

    def _exports(self, env: Mapping[str, str] | None) -> str:
        values = {**self._environment, **(env or {})}
        for name in values:
            if not _NAME.match(name):
                raise ValueError(f"{name!r} is no name of an environment variable")
        return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in values.items())

    @contextlib.contextmanager
    def _left_there(self, exports: str) -> Iterator[str]:
        """The environment of a program in a file that only the user may read (its name, quoted). It is gone when the
        program begins, and when it does not."""
        left = self.run(
            'umask 077; f=$(mktemp) && printf %s "$CLUSTERCTL_EXPORTS" > "$f" && echo "$f"',
            env={"CLUSTERCTL_EXPORTS": exports},
            timeout_s=CONNECT_S,
        )
        if left.exit_status != 0:
            raise ShellError(f"{self._target}: {left.output.strip()}")
        file = shlex.quote(left.output.strip())
        try:
            yield file
        except BaseException:
            with contextlib.suppress(ShellError):
                self.run(f"rm -f {file}", timeout_s=_KILL_S)
            raise

    @contextlib.contextmanager
    def _started(
        self, script: str, timeout_s: float | None, stall_s: float | None = None, *, is_asked: bool = False
    ) -> Iterator[Running]:
        """Starts a script; kills all of it when the body is left by an exception.

        Args:
            is_asked: the shell that reads it waits for the next one then.
        """
        script = self._guard + script
        if is_asked:
            script = f"(\n{script}\n) </dev/null 2>&1\n"
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        connect_by = time.monotonic() + (CONNECT_S if timeout_s is None else min(CONNECT_S, timeout_s))
        with CONNECTIONS.session(self._target, connect_by, is_new=False) as channel:
            running = Running(channel, script, deadline, stall_s, is_last=not is_asked)
            try:
                try:
                    running.begin(_BEGIN_S)
                except TimeoutError:
                    raise self._not_begun() from None
                yield running
            except BaseException:
                self._kill(running.group)
                raise

    def _not_begun(self) -> ShellTimedOut:
        return ShellTimedOut(
            f"{self._target} did not begin to run a command within {_BEGIN_S:g} s: its sshd does not answer, or the "
            "user's log-in scripts do not end"
        )

    def _kill(self, group: int) -> None:
        if not group:
            return
        with (
            contextlib.suppress(ShellError, TimeoutError),  # it cannot be reached
            CONNECTIONS.session(self._target, time.monotonic() + _KILL_S) as channel,
        ):
            channel.execute(f"exec /bin/sh -c 'kill -KILL -{group}'", time.monotonic() + _KILL_S)
            channel.recv(1, _KILL_S)  # until it has happened

    @contextlib.contextmanager
    def _copying(self, what: str) -> Iterator[None]:
        try:
            yield
        except Late:
            raise ShellTimedOut(f"{what} {self._target}: no progress for {_STALL_S:g} s") from None
        except ShellError as error:
            raise type(error)(f"{what}: {error}") from error


class _ToMachine(io.RawIOBase):
    """The input of a script."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def write(self, data: bytes) -> int:  # type: ignore[override]
        try:
            self._channel.sendall(data, _STALL_S)
        except TimeoutError:
            raise Late from None
        return len(data)


class _RemoteTerminal:
    """A pseudo-terminal of the machine, as `terminal.connect` needs it."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def fileno(self) -> int:
        return self._channel.fileno()

    def read(self) -> bytes:
        return self._channel.recv(_BLOCK)

    def write(self, data: bytes) -> None:
        with contextlib.suppress(Broken):  # it has ended, and reading says so
            self._channel.sendall(data)

    def resize(self, rows: int, columns: int) -> None:
        self._channel.resize(rows, columns)


def _path(remote: str) -> str:
    """The path as a command there takes it, whatever it begins with."""
    path = remote.rstrip("/") or "/"
    if path == "~":
        path = "."
    elif path.startswith("~/"):
        path = path[2:]
    return path if path.startswith("/") else f"./{path}"
