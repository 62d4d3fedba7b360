"""Scripts one after another in one shell of each kind, without a machine: the session is a pair of pipes."""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import subprocess
import time
from collections.abc import Iterator, Sequence
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.provider import ShellError
from clusterctl.shell.channel import Broken, Channel
from clusterctl.shell.running import Late, Running
from tests.shells import SHELLS

LIMIT_S = 30.0
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"))


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
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, process_group=0
        )

    def sendall(self, data: bytes, timeout_s: float | None = None) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(data)
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Broken from None

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
@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(TEXT, st.integers(0, 255)), max_size=4))
def test_each_script_has_its_own_output_and_status(
    shell: Sequence[str], scripts: list[tuple[str, int]]
) -> None:
    with session(shell) as pipes:
        for text, status in scripts:
            script = f"printf %s {shlex.quote(text)}; exit {status}"
            assert run(pipes, asked(script)) == (status, text.encode())
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
@pytest.mark.parametrize("end", ["kill -KILL $$; kill -KILL 0", "fi"])
def test_a_shell_that_ends_with_a_script_waits_for_none(shell: Sequence[str], end: str) -> None:
    with session(shell) as pipes:
        assert run(pipes, asked("echo one")) == (0, b"one\n")
        status, _ = run(pipes, asked(end))
        assert status != 0
        assert not pipes.waits


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
