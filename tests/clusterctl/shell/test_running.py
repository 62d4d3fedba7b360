"""A script in a shell of each kind, without a machine: the session is a pair of pipes."""

from __future__ import annotations

import contextlib
import os
import pathlib
import select
import shlex
import subprocess
import time
from collections.abc import Iterator, Sequence
from typing import cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from autoscaler.provider import CommandTimedOut, ShellError
from clusterctl.shell.channel import Broken, Channel
from clusterctl.shell.running import Running
from tests.shells import SHELLS

LIMIT_S = 30.0
BYTES = st.binary(max_size=200).map(lambda data: data.replace(b"\0", b""))


class Pipes:
    """What `Running` uses of a channel."""

    machine = "here"

    def __init__(self, shell: Sequence[str]) -> None:
        self._shell = shell
        self._process: subprocess.Popen[bytes] | None = None
        self.has_ended = False

    def execute(self, command: str, deadline: float) -> None:
        words = ["/bin/sh", "-c", command.replace("/bin/sh", shlex.join(self._shell))]
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C.UTF-8"},  # in which not all bytes are characters
            process_group=0,
        )

    def sendall(self, data: bytes, timeout_s: float | None = None) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(data)
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Broken from None

    def shutdown_write(self) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()

    def await_output(self, timeout_s: float | None) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], timeout_s)[0]:
            raise TimeoutError

    def recv(self, size: int, timeout_s: float | None = None) -> bytes:
        self.await_output(timeout_s)
        assert self._process is not None
        assert self._process.stdout is not None
        data = os.read(self._process.stdout.fileno(), size)
        self.has_ended = not data
        return data

    def words(self) -> str:
        return ""

    def exit_status(self, deadline: float | None) -> int:
        assert self._process is not None
        return self._process.wait(LIMIT_S)

    def kill(self) -> None:
        """All that runs in it."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, 9)
            self._process.wait()

    def close(self) -> None:
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout) if self._process else ():
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


@contextlib.contextmanager
def session(shell: Sequence[str]) -> Iterator[Pipes]:
    pipes = Pipes(shell)
    try:
        yield pipes
    finally:
        pipes.close()


def running_in(pipes: Pipes, script: str, limit_s: float = LIMIT_S) -> Running:
    late = CommandTimedOut("too late")
    running = Running(cast(Channel, pipes), script, late, time.monotonic() + limit_s)
    running.begin(LIMIT_S)
    return running


def run(pipes: Pipes, script: str, limit_s: float = LIMIT_S) -> tuple[int, bytes]:
    output = bytearray()
    return running_in(pipes, script, limit_s).finish(output.extend), bytes(output)


def apart(script: str) -> str:
    return f"(\n{script}\n) </dev/null 2>&1\n"


@pytest.mark.parametrize("shell", SHELLS, ids=shlex.join)
@settings(max_examples=20, deadline=None)
@given(BYTES, st.integers(0, 255))
@example(bytes(range(1, 256)) * 2, 1)
@example(b"\\c\\0101\\x41\\\\n\\\n'\"$x`x`%s-n\r", 2)
@example(b"\x01\xc2\x01\x7f", 3)
@example(b"\n} \n)", 0)
@example(b"\n long \\ lines \xff\n" * 6000, 4)
@example(b"<0123456789abcdef", 5)
def test_a_script_has_all_its_output_and_its_status(shell: Sequence[str], data: bytes, status: int) -> None:
    with session(shell) as pipes:
        script = f"printf %s {shlex.quote(os.fsdecode(data))}; exit {status}"
        assert run(pipes, apart(script)) == (status, data)


@pytest.mark.parametrize("shell", SHELLS, ids=shlex.join)
def test_nobody_waits_for_what_a_script_leaves_running(shell: Sequence[str]) -> None:
    with session(shell) as pipes:
        assert run(pipes, apart("sleep 300 & echo begun")) == (0, b"begun\n")


@pytest.mark.parametrize("shell", SHELLS, ids=shlex.join)
def test_input_that_a_script_leaves_is_never_run(shell: Sequence[str]) -> None:
    with session(shell) as pipes:
        running = running_in(pipes, "read -r line\n")
        pipes.sendall(b"one\necho two\necho three\n")
        output = bytearray()
        assert running.finish(output.extend) == 0
        assert bytes(output) == b""
        assert pipes.recv(99, LIMIT_S) == b""


@pytest.mark.parametrize("shell", SHELLS, ids=shlex.join)
def test_the_input_of_a_script_is_all_its_own(shell: Sequence[str]) -> None:
    with session(shell) as pipes:
        long = f': {"x" * 100_000}\nread -r line; echo "<$line>"; cat\n'
        running = running_in(pipes, long)
        pipes.sendall(b"one\ntwo\nthree")
        pipes.shutdown_write()
        output = bytearray()
        assert running.finish(output.extend) == 0
        assert bytes(output) == b"<one>\ntwo\nthree"


@pytest.mark.parametrize("shell", SHELLS, ids=shlex.join)
def test_a_script_that_is_killed_has_failed_after_what_it_said(shell: Sequence[str]) -> None:
    with session(shell) as pipes:
        status, output = run(pipes, apart("echo two; kill -KILL $$; kill -KILL 0"))
        assert (status != 0, output) == (True, b"two\n")


@pytest.mark.parametrize("shell", SHELLS, ids=shlex.join)
@pytest.mark.parametrize("broken", ["fi", "}", "if (", "echo 'open"])
def test_nothing_of_a_script_runs_that_is_none_or_does_not_come_whole(
    shell: Sequence[str], broken: str, tmp_path: pathlib.Path
) -> None:
    with session(shell) as pipes:
        sendall = pipes.sendall

        def send_and_end(data: bytes, timeout_s: float | None = None) -> None:
            sendall(data)
            pipes.shutdown_write()

        pipes.sendall = send_and_end  # type: ignore[method-assign]
        with contextlib.suppress(ShellError):
            run(pipes, apart(f"touch {tmp_path}/ran\n{broken}"))
    with session(shell) as pipes:
        sendall = pipes.sendall

        def send_a_part(data: bytes, timeout_s: float | None = None) -> None:
            sendall(data[:-4])
            pipes.shutdown_write()

        pipes.sendall = send_a_part  # type: ignore[method-assign]
        with pytest.raises(ShellError, match="here runs no command"):
            run(pipes, apart(f"touch {tmp_path}/ran"))
    assert not (tmp_path / "ran").exists()


def test_a_script_that_takes_too_long_is_given_up() -> None:
    with session(SHELLS[0]) as pipes, pytest.raises(CommandTimedOut, match="too late"):
        run(pipes, apart("sleep 300"), limit_s=0.1)


def test_a_shell_that_ends_at_once_is_an_error() -> None:
    with session(["/bin/false"]) as pipes, pytest.raises(ShellError, match="here runs no command"):
        run(pipes, apart("echo one"))
