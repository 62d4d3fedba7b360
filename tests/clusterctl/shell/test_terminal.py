"""A program in a pseudo-terminal, joined with another pseudo-terminal as a person's would be."""

from __future__ import annotations

import os
import pty
import struct
import subprocess
import sys
from fcntl import ioctl
from termios import TIOCSWINSZ

PROGRAM = """
import sys
from clusterctl.shell.terminal import join
sys.exit(join(["/bin/sh", "-c", sys.argv[1]], "/", {"PATH": "/usr/bin:/bin", "TERM": "dumb"}))
"""


def in_terminal(script: str, typed: bytes = b"", columns: int = 77) -> tuple[int, bytes]:
    """Runs `join` with a terminal of 31 x 77 as its own; when the program has said 'ready', makes it as wide as
    `columns`, and types."""
    pid, master = pty.fork()
    if pid == 0:
        ioctl(0, TIOCSWINSZ, struct.pack("HHHH", 31, 77, 0, 0))  # before the program can look
        os.execv(sys.executable, [sys.executable, "-c", PROGRAM, script])
    shown = b""
    try:
        while True:
            try:
                data = os.read(master, 4096)
            except OSError:
                break
            if not data:
                break
            shown += data
            if typed and b"ready" in shown:
                ioctl(master, TIOCSWINSZ, struct.pack("HHHH", 31, columns, 0, 0))
                os.write(master, typed)
                typed = b""
    finally:
        os.close(master)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), shown


def test_the_program_has_a_real_terminal() -> None:
    status, shown = in_terminal("test -t 0 && test -t 1 && tty && exit 6")
    assert status == 6
    assert b"/dev/pts/" in shown


def test_what_is_typed_arrives_and_ctrl_c_is_the_programs() -> None:
    status, shown = in_terminal(
        "trap 'echo caught; exit 9' INT; echo ready; read line; while :; do sleep 1; done", b"x\n\x03"
    )
    assert status == 9
    assert b"caught" in shown


def test_the_window_has_the_callers_size() -> None:
    _, shown = in_terminal("echo ready; read line; stty size", b"\n")
    assert b"31 77" in shown


def test_the_window_changes_with_the_callers() -> None:
    script = "trap 'stty size; exit 3' WINCH; echo ready; read line; while :; do sleep 1; done"
    status, shown = in_terminal(script, b"x\n", columns=99)
    assert status == 3
    assert b"31 99" in shown


def test_without_a_terminal_the_end_of_input_is_typed() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, "test -t 0 || exit 1; cat; exit 4"],
        input=b"hello\n",
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 4
    assert b"hello" in ran.stdout


def test_the_end_of_input_reaches_a_program_that_was_not_listening_yet() -> None:
    flush = "import termios; input(); termios.tcflush(0, termios.TCIFLUSH); print('flushed'); input()"
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, f'{sys.executable} -c "{flush}"; exit 5'],
        input=b"first\n",
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 5
    assert b"EOFError" in ran.stdout


def test_death_by_a_signal_is_128_and_the_signal() -> None:
    status, _ = in_terminal("kill -KILL $$")
    assert status == 137
