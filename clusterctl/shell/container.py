"""The shell of a container, through that of the machine it runs on."""

from __future__ import annotations

import contextlib
import secrets
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager

from autoscaler.provider import CommandResult, CommandTimedOut, Shell, ShellError, Streams

from . import scripts
from .forwarding import OnTunnel

_ENGINE = "~/.clusterctl-node/engine"
_IN = "\x1ein"
_MARK = "CLUSTERCTL_EXEC_IN"
_KILL_S = 10.0
_PASSED_ON = ("CLUSTERCTL_MACHINE", "CLUSTERCTL_SESSION_DIR", "CLUSTERCTL_SOCKETS_DIR")
"""Of the machine's environment."""
_TO_HOME = """\
case "$CLUSTERCTL_SESSION_DIR" in "$HOME"/*) CLUSTERCTL_SESSION_DIR="~${CLUSTERCTL_SESSION_DIR#"$HOME"}";; esac
"""
"""A folder in the home directory of the machine's user is passed on as one in that of the image's user."""

_BEGIN = """\
cd 2>/dev/null || cd /
export HOME="${HOME:-$PWD}" PYTHONUNBUFFERED=1 CLUSTERCTL_BASE_PYTHON=python3
case "$CLUSTERCTL_SESSION_DIR" in "~/"*) CLUSTERCTL_SESSION_DIR="$HOME${CLUSTERCTL_SESSION_DIR#"~"}";; esac
bin=$HOME/.clusterctl-node/runtime/bin
export PATH="$bin:$PATH" CLUSTERCTL_PYTHON=$bin/python
"""

_INSIDE = "CLUSTERCTL_INSIDE"
"""The command for the container; the machine's own shell uses `scripts.VARIABLE`."""
_RUN = f"exec /bin/sh -c {shlex.quote(scripts.evaluate(_INSIDE))}"


class ContainerShell:
    """See `autoscaler.provider.Shell`. Relative paths and `~` begin in the home directory of the image's user."""

    def __init__(self, machine: Shell, name: str) -> None:
        self._machine = machine
        self._name = name

    def run(
        self,
        command: str,
        *,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        on_output: Callable[[str], None] | None = None,
        stdin: Iterable[bytes] | None = None,
    ) -> CommandResult:
        mark = secrets.token_hex(8)
        is_in = False

        def take(line: str) -> None:
            nonlocal is_in
            if not is_in:
                is_in = line == _IN
            elif on_output is not None:
                on_output(line)

        inside = f"exec 2>&1; echo '{_IN}'; {_BEGIN}{_RUN}"
        flags = "-i" if stdin is not None else ""
        values = {**(env or {}), _MARK: mark, _INSIDE: command}
        with self._killed(mark, command, timeout_s):
            result = self._machine.run(
                self._exec(flags, values, inside),
                env=values,
                timeout_s=timeout_s,
                on_output=take,
                stdin=stdin,
            )
        if not is_in:
            raise ShellError(f"container {self._name}: {result.output.strip()[-1000:]}")
        return CommandResult(result.exit_status, result.output.removeprefix(f"{_IN}\n"))

    def pipe(
        self,
        command: str,
        streams: Streams,
        *,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> int:
        self.run(":", timeout_s=_KILL_S)  # the engine's own words would pass for the command's
        mark = secrets.token_hex(8)
        flags = "" if streams.stdin is None else "-i"
        values = {**(env or {}), _MARK: mark, _INSIDE: command}
        script = self._exec(flags, values, _BEGIN + _RUN)
        with self._killed(mark, command, timeout_s):
            return self._machine.pipe(script, streams, env=values, timeout_s=timeout_s)

    def interactive(self, command: str | None = None, *, env: Mapping[str, str] | None = None) -> int:
        log_in = 'exec "$(command -v bash || echo /bin/sh)" -i'
        values = dict(env or {})
        if command is not None:
            values[_INSIDE] = command
        inside = _BEGIN + (log_in if command is None else _RUN)
        return self._machine.interactive(self._exec("-it", values, inside), env=values)

    def forward(self, port: int, on_tunnel: OnTunnel | None = None) -> AbstractContextManager[int]:
        return self._machine.forward(port, on_tunnel)  # the network is the machine's

    def close(self) -> None:
        self._machine.close()

    # -- inside

    def _exec(self, flags: str, env: Mapping[str, str], inside: str) -> str:
        """The machine's command. Values of the environment are passed on by name, so that no process list has them."""
        scripts.check_names(env)
        names = " ".join(f"-e {name}" for name in (*env, *_PASSED_ON))
        return (
            f"{_TO_HOME}engine=$(cat {_ENGINE}) || exit 1; "
            f"exec $engine exec {flags} {names} {shlex.quote(self._name)} /bin/sh -c {shlex.quote(inside)}"
        )

    @contextlib.contextmanager
    def _killed(self, mark: str, command: str, timeout_s: float | None) -> Iterator[None]:
        """Kills what a command started when it fails, by the mark in its environment: it does not end with who waits
        for it."""
        try:
            yield
        except BaseException as error:
            kill = self._exec("", {}, scripts.kill_marked(_MARK, mark))
            with contextlib.suppress(ShellError, OSError):
                self._machine.run(kill, timeout_s=_KILL_S)
            if isinstance(error, CommandTimedOut):
                raise CommandTimedOut(f"the command did not end within {timeout_s} s: {command}") from error
            raise
