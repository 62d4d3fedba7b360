"""Scripts one after another in one shell of each kind, without a machine: the session is a pair of pipes."""

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

from autoscaler.provider import ShellError
from clusterctl.shell.channel import Broken, Channel
from clusterctl.shell.running import Late, Running
from tests.shells import SHELLS

LIMIT_S = 30.0
BYTES = st.binary(max_size=200).map(lambda data: data.replace(b"\0", b""))


class Pipes:
    """What `Running` uses of a channel."""

    machine = "here"

    def __init__(self, shell: Sequence[str]) -> None:
        self._shell = shell
        self._process: subprocess.Popen[bytes] | None = None
        self.waits = False
        self.has_ended = False
        self.began = 0

    def execute(self, command: str, deadline: float) -> None:
        self.began += 1
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


def run(pipes: Pipes, script: str, *, is_last: bool = False, limit_s: float = LIMIT_S) -> tuple[int, bytes]:
    running = Running(cast(Channel, pipes), script, time.monotonic() + limit_s, is_last=is_last)
    running.begin(LIMIT_S)
    output = bytearray()
    return running.finish(output.extend), bytes(output)


def asked(script: str) -> str:
    return f"(\n{script}\n) </dev/null 2>&1\n"


@pytest.mark.parametrize("shell", SHELLS, ids=shlex.join)
@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(BYTES, st.integers(0, 255)), max_size=4))
@example([(bytes(range(1, 256)) * 2, 1)])
@example([(b"\\c\\0101\\x41\\\\n\\\n'\"$x`x`%s-n\r", 2)])
@example([(b"\x01\xc2\x01\x7f", 3), (b"\n} \n)", 0)])
@example([(b"\n long \\ lines \xff\n" * 6000, 4), (b"x", 5)])
def test_each_script_has_its_own_output_and_status(
    shell: Sequence[str], scripts: list[tuple[bytes, int]]
) -> None:
    with session(shell) as pipes:
        for data, status in scripts:
            script = f"printf %s {shlex.quote(os.fsdecode(data))}; exit {status}"
            assert run(pipes, asked(script)) == (status, data)
        assert pipes.began == min(1, len(scripts))


@pytest.mark.parametrize("shell", SHELLS, ids=shlex.join)
def test_a_script_finds_nothing_of_those_before_it(shell: Sequence[str]) -> None:
    look = 'echo "$A $(umask) $PWD $-"; cat; trap'
    with session(shell) as pipes:
        before = run(pipes, asked(look))
        changes = "export A=1; A=2; umask 0; cd /; set -f; trap 'echo trapped' EXIT; exec 3<&0; f() { :; }"
        assert run(pipes, asked(f"{changes}; exit 9")) == (9, b"trapped\n")
        assert run(pipes, asked(look)) == before
        assert run(pipes, asked("seq 100000 | tail -n 1; seq 100000"))[1].count(b"\n") == 100001
        assert run(pipes, asked("sleep 300 >/dev/null 2>&1 &")) == (0, b"")  # nobody waits for it
        assert run(pipes, asked(look)) == before
        assert pipes.began == 1
        assert run(pipes, "echo last\n", is_last=True) == (0, b"last\n")
        assert not pipes.waits


@pytest.mark.parametrize("shell", SHELLS, ids=shlex.join)
def test_what_is_said_too_late_is_no_answer_to_the_next(shell: Sequence[str]) -> None:
    with session(shell) as pipes:
        assert run(pipes, "(sleep 0.05; echo too late) &\n") == (0, b"")
        pipes.await_output(LIMIT_S)
        assert run(pipes, asked("echo in time")) == (0, b"in time\n")


@pytest.mark.parametrize("shell", SHELLS, ids=shlex.join)
def test_input_that_a_last_script_leaves_is_never_run(shell: Sequence[str]) -> None:
    with session(shell) as pipes:
        running = Running(cast(Channel, pipes), "read -r line\n", time.monotonic() + LIMIT_S)
        running.begin(LIMIT_S)
        pipes.sendall(b"one\necho two\necho three\n")
        output = bytearray()
        assert running.finish(output.extend) == 0
        assert (bytes(output), pipes.waits) == (b"", False)
        assert pipes.recv(99, LIMIT_S) == b""


@pytest.mark.parametrize("shell", SHELLS, ids=shlex.join)
def test_the_input_of_a_last_script_is_all_its_own(shell: Sequence[str]) -> None:
    with session(shell) as pipes:
        long = f': {"x" * 100_000}\nread -r line; echo "<$line>"; cat\n'
        running = Running(cast(Channel, pipes), long, time.monotonic() + LIMIT_S)
        running.begin(LIMIT_S)
        pipes.sendall(b"one\ntwo\nthree")
        pipes.shutdown_write()
        output = bytearray()
        assert running.finish(output.extend) == 0
        assert bytes(output) == b"<one>\ntwo\nthree"


@pytest.mark.parametrize("shell", SHELLS, ids=shlex.join)
def test_a_shell_that_is_killed_by_a_script_waits_for_none(shell: Sequence[str]) -> None:
    with session(shell) as pipes:
        assert run(pipes, asked("echo one")) == (0, b"one\n")
        status, output = run(pipes, asked("echo two; kill -KILL $$; kill -KILL 0"))
        assert (status != 0, output) == (True, b"two\n")
        assert not pipes.waits


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
            run(pipes, asked(f"touch {tmp_path}/ran\n{broken}"))
        assert not pipes.waits
    with session(shell) as pipes:
        sendall = pipes.sendall

        def send_a_part(data: bytes, timeout_s: float | None = None) -> None:
            sendall(data[:-4])
            pipes.shutdown_write()

        pipes.sendall = send_a_part  # type: ignore[method-assign]
        with pytest.raises(ShellError, match="here runs no command"):
            run(pipes, asked(f"touch {tmp_path}/ran"))
    assert not (tmp_path / "ran").exists()


def test_a_script_that_takes_too_long_leaves_no_shell_that_waits() -> None:
    with session(SHELLS[0]) as pipes:
        assert run(pipes, asked("echo one")) == (0, b"one\n")
        with pytest.raises(Late):
            run(pipes, asked("sleep 300"), limit_s=0.1)
        assert not pipes.waits


def test_a_shell_that_ended_before_it_was_asked_is_an_error() -> None:
    with session(SHELLS[0]) as pipes:
        run(pipes, asked(":"))
        pipes.kill()
        with pytest.raises(ShellError, match="here runs no command"):
            run(pipes, asked("echo one"))
