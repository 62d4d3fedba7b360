"""The shell of a machine that is entered by SSH. All shells of a machine share one connection (`connections`).

What runs there is sent as a script on the command's input, never as arguments, so the machine's log-in shell and its
process list do not show it (`scripts.in_shell`). The script's process leads a process group, so that all of it can be
killed.
"""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from autoscaler.provider import CommandResult, CommandTimedOut, ShellError, ShellTimedOut, Streams
from clusterctl import settings

from . import scripts, terminal
from .connections import CONNECT_S, CONNECTIONS
from .forwarding import OnTunnel, forwarded
from .piping import Feeder, Output, RemoteErrors, feeding_from, write_all
from .running import Running, not_begun
from .target import SshTarget

_BEGIN_S = 60.0
"""What an sshd and the user's log-in scripts may take before a command runs."""
_KILL_S = 5.0


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
        script = self._exports(env) + f"{scripts.in_shell(command)} {source} 2>&1\n"
        late = _too_long(command, timeout_s)
        with Feeder(stdin) as feeder, self._started(script, late, timeout_s) as running:
            feeder.start(running.channel.sendall, running.channel.shutdown_write)
            output = Output(on_output)
            status = running.finish(output.take)
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
        script = self._exports(env) + errors.around(f"{scripts.in_shell(command)} {source}")
        late = _too_long(command, timeout_s)
        with feeding_from(streams.stdin) as feeder, self._started(script, late, timeout_s) as running:
            errors.start(running.channel)
            feeder.start(running.channel.sendall, running.channel.shutdown_write)
            status = running.finish(lambda data: write_all(streams.stdout, data))
            errors.finish()
        return status

    def ask(self, script: str, *, env: Mapping[str, str] | None = None, timeout_s: float) -> CommandResult:
        """Runs a script of this program's own. A machine that does not end it in time is one that does not answer."""
        try:
            return self.run(script, env=env, timeout_s=timeout_s)
        except CommandTimedOut:
            raise ShellTimedOut(f"{self._target} did not answer within {timeout_s} s") from None

    def interactive(self, command: str | None = None, *, env: Mapping[str, str] | None = None) -> int:
        run = 'exec "${SHELL:-/bin/sh}" -i'
        exports = self._exports(env)
        if command:
            run = f"exec /bin/sh -c {shlex.quote(scripts.evaluate())}"
            exports += self._exports({scripts.VARIABLE: command})
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
                raise not_begun(str(self._target), _BEGIN_S) from None
            terminal.connect(channel)
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
        scripts.check_names(values)
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
    def _started(self, script: str, late: ShellTimedOut, timeout_s: float | None) -> Iterator[Running]:
        """Starts a script; kills all of it when the body is left by an exception. Arguments are those of `Running`."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        connect_by = time.monotonic() + (CONNECT_S if timeout_s is None else min(CONNECT_S, timeout_s))
        with CONNECTIONS.session(self._target, connect_by) as channel:
            running = Running(channel, self._guard + script, late, deadline)
            try:
                running.begin(_BEGIN_S)
                yield running
            except BaseException:
                self._kill(running.group)
                raise

    def _kill(self, group: int) -> None:
        if not group:
            return
        with (
            contextlib.suppress(ShellError, TimeoutError),  # it cannot be reached
            CONNECTIONS.session(self._target, time.monotonic() + _KILL_S) as channel,
        ):
            channel.execute(f"exec /bin/sh -c 'kill -KILL -{group}'", time.monotonic() + _KILL_S)
            channel.recv(1, _KILL_S)  # until it has happened


def _too_long(command: str, timeout_s: float | None) -> CommandTimedOut:
    return CommandTimedOut(f"the command did not end within {timeout_s} s: {command}")
