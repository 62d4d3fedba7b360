"""What every shell must keep, run against each of them. `ssh` is a real sshd on a host of its own."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import pathlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from autoscaler.provider import Shell, ShellTimedOut, Streams
from clusterctl.launcher.containers import Container
from clusterctl.launcher.steps import in_bash
from clusterctl.shell.connections import CONNECTIONS
from clusterctl.shell.container import ContainerShell
from clusterctl.shell.local import LocalShell
from clusterctl.shell.ssh import SshShell
from clusterctl.shell.target import SshTarget
from tests.polling import eventually
from tests.testbed import podman
from tests.testbed.sshd import USER, SshTestbed, missing

NewShell = Callable[[dict[str, str]], Shell]


@pytest.fixture(scope="module", params=["local", "ssh", "container"])
def new_shell(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NewShell]:
    folder = tmp_path_factory.mktemp("shell")
    if request.param == "local":
        (folder / "home").mkdir()
        yield lambda env: LocalShell(str(folder / "home"), {"PATH": "/usr/bin:/bin", **env})
        return
    if reason := missing():
        pytest.skip(reason)
    if request.param == "container":
        yield from _container(folder)
        return
    with SshTestbed(1, folder) as bed, bed.inside():
        target = SshTarget(bed.hosts[0].address, str(folder / "known"), user=USER, key_file=str(bed.key_file))
        yield lambda env: SshShell(target, env)
        CONNECTIONS.close_all()


def _container(folder: pathlib.Path) -> Iterator[NewShell]:
    """One in a container of a host, whose environment is fixed when it starts."""
    if reason := podman.missing():
        pytest.skip(reason)
    image = podman.make_image(folder / "image")
    with SshTestbed(1, folder, [str(image)]) as bed, bed.inside():
        podman.install(bed.hosts[0], image)
        target = SshTarget(bed.hosts[0].address, str(folder / "known"), user=USER, key_file=str(bed.key_file))
        machine = SshShell(target)
        container = Container(podman.IMAGE, "c", ("-e MARK=m",), pull=False)
        for command in (container.engine(), container.run()):
            ran = machine.run(command)
            assert ran.exit_status == 0, ran.output
        yield lambda env: ContainerShell(machine, container.name)
        machine.run(". ~/.clusterctl-node/leave")
        CONNECTIONS.close_all()
        podman.clean_up(bed.hosts[0])


@pytest.fixture
def shell(new_shell: NewShell) -> Iterator[Shell]:
    shell = new_shell({"MARK": "m"})
    shell.run(
        "find . -mindepth 1 -maxdepth 1 ! -name .ssh -exec rm -rf {} +"
    )  # a connection may have to be made again
    yield shell
    shell.close()


def is_alive(shell: Shell, pid: int) -> bool:
    return shell.run(f"grep -q '^State:.[^Z]' /proc/{pid}/status").exit_status == 0


def test_run(shell: Shell) -> None:
    lines: list[str] = []
    result = shell.run(
        "echo $MARK $MORE; pwd; echo oops >&2; exit 3", env={"MORE": "n"}, on_output=lines.append
    )
    assert result.exit_status == 3
    assert lines == ["m n", shell.run("echo $HOME").output.strip() or lines[1], "oops"]
    assert result.output.splitlines() == lines


def test_values_arrive_as_they_are(shell: Shell) -> None:
    odd = "a'b\"c $HOME `x` \\ \n* é"
    assert shell.run('printf %s "$ODD"', env={"ODD": odd}).output == odd


def test_values_are_on_no_command_line(shell: Shell) -> None:
    look = """for file in /proc/[0-9]*/cmdline; do
        { words=$(tr "\\0" " " < $file); } 2>/dev/null
        case "$words" in *"$VALUE"*) echo "$words";; esac
    done"""
    assert shell.run(look, env={"VALUE": "not-to-be-seen"}).output == ""


def test_the_environment_is_the_machines_alone(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONLY_HERE", "1")
    assert shell.run('echo "[$ONLY_HERE]"').output == "[]\n"


def test_a_line_without_an_end_is_shown(shell: Shell) -> None:
    lines: list[str] = []
    shell.run("printf 'a\\nb'", on_output=lines.append)
    assert lines == ["a", "b"]


def test_lines_are_shown_as_they_appear(shell: Shell) -> None:
    def go_on(line: str) -> None:
        if line == "waiting":
            assert shell.run("touch go").exit_status == 0

    ran = shell.run("echo waiting; until [ -e go ]; do sleep 0.02; done; echo done", on_output=go_on)
    assert ran.output == "waiting\ndone\n"


def test_a_daemon_that_keeps_the_output_open_is_not_waited_for(shell: Shell) -> None:
    result = shell.run("sleep 300 & echo $!; exit 0", timeout_s=60.0)
    assert result.exit_status == 0
    assert shell.run(f"kill -9 {int(result.output)}").exit_status == 0


def test_a_command_that_closes_its_output_is_waited_for(shell: Shell) -> None:
    assert shell.run("exec >&- 2>&-; sleep 0.1; exit 4").exit_status == 4


def test_a_command_that_is_killed_says_so(shell: Shell) -> None:
    assert shell.run("kill -KILL $$").exit_status in (-9, 137)


def test_at_the_deadline_the_whole_group_is_killed(shell: Shell) -> None:
    for limit_s in (0.2, 2, 20):  # a shell may take longer to start than the time it has
        with pytest.raises(ShellTimedOut, match=rf"within {limit_s} s"):
            shell.run("sleep 300 & echo $! > pid; sleep 300", timeout_s=limit_s)
        noted = shell.run("cat pid").output.strip()
        if noted.isdigit():
            break
    assert eventually(lambda: not is_alive(shell, int(noted)))


def test_an_interrupted_run_leaves_nothing_behind(shell: Shell) -> None:
    def interrupt(line: str) -> None:
        raise KeyboardInterrupt(line)

    with pytest.raises(KeyboardInterrupt) as raised:
        shell.run("sleep 300 & echo $!; wait", on_output=interrupt)
    pid = int(str(raised.value))
    assert eventually(lambda: not is_alive(shell, pid))


def test_only_the_end_of_a_long_output_is_kept(shell: Shell) -> None:
    result = shell.run("head -c 3000000 /dev/zero | tr '\\0' '<'; echo end")
    assert len(result.output) == 2**20
    assert result.output.endswith("<end\n")


def test_a_port_of_the_machine_answers_many(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        number = probe.getsockname()[1]
    serve = (
        f"import socket\nwith socket.create_server(('127.0.0.1', {number})) as server:\n print('up', flush=True)\n"
        " for _ in range(3):\n  with server.accept()[0] as peer:\n   got = peer.recv(10)\n"
        "   peer.sendall(got * 100000)\n"
    )
    up = threading.Event()
    server = threading.Thread(
        target=shell.run,
        args=('exec python3 -c "$SERVE"',),
        kwargs={"env": {"SERVE": serve}, "on_output": lambda _: up.set(), "timeout_s": 60.0},
    )
    server.start()
    assert up.wait(60)
    with shell.forward(number) as port:
        for word in (b"one", b"two", b"six"):
            with socket.create_connection(("127.0.0.1", port), 30) as stream:
                stream.sendall(word)
                got = b""
                while data := stream.recv(65536):
                    got += data
            assert got == word * 100000
    server.join()


def test_a_command_reads_what_it_is_given(shell: Shell) -> None:
    blocks = [bytes([number]) * 100_000 for number in range(50)]
    result = shell.run("echo start; sha256sum", stdin=iter(blocks))
    assert result.output == f"start\n{hashlib.sha256(b''.join(blocks)).hexdigest()}  -\n"
    assert shell.run("cat", stdin=[]).output == ""


def test_a_command_that_reads_nothing_of_much(shell: Shell) -> None:
    endless = itertools.repeat(b"x" * 65536)
    assert shell.run("exit 3", stdin=endless).exit_status == 3
    with pytest.raises(ShellTimedOut):
        shell.run("sleep 300", stdin=itertools.repeat(b"x" * 65536), timeout_s=1.0)


def test_a_source_that_fails_says_so(shell: Shell) -> None:
    def broken() -> Iterator[bytes]:
        yield b"one"
        raise LookupError("the source")

    with pytest.raises(LookupError, match="the source"):
        shell.run("cat", stdin=broken())


class Piped:
    """What `pipe` wrote, collected by threads from real pipes."""

    def __init__(self) -> None:
        self.ends = {name: os.pipe() for name in ("out", "err")}
        self.got = {name: bytearray() for name in self.ends}
        self._threads = [threading.Thread(target=self._collect, args=(name,)) for name in self.ends]
        for thread in self._threads:
            thread.start()

    def _collect(self, name: str) -> None:
        while data := os.read(self.ends[name][0], 65536):
            self.got[name].extend(data)

    def streams(self, stdin: int | None) -> Streams:
        return Streams(stdin, self.ends["out"][1], self.ends["err"][1])

    def end(self) -> tuple[bytes, bytes]:
        for _, write in self.ends.values():
            os.close(write)
        for thread in self._threads:
            thread.join()
        for read, _ in self.ends.values():
            os.close(read)
        return bytes(self.got["out"]), bytes(self.got["err"])


def piped(shell: Shell, command: str, data: bytes | None = None) -> tuple[int, bytes, bytes]:
    collected = Piped()
    read, write = os.pipe()
    feeder = threading.Thread(target=lambda: (_write_all(write, data or b""), os.close(write)))
    feeder.start()
    try:
        status = shell.pipe(command, collected.streams(None if data is None else read))
    finally:
        out, err = collected.end()
        os.close(read)
        feeder.join()
    return status, out, err


def _write_all(descriptor: int, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError):
        while data:
            data = data[os.write(descriptor, data) :]


EVERY_BYTE = bytes(range(256)) * 4000 + b"no newline at the end <\xff"


def test_a_pipe_changes_no_byte_in_either_direction(shell: Shell) -> None:
    assert piped(shell, "cat", EVERY_BYTE) == (0, EVERY_BYTE, b"")
    assert piped(shell, "cat > file; exit 4", EVERY_BYTE) == (4, b"", b"")
    assert piped(shell, "cat file") == (0, EVERY_BYTE, b"")


def test_a_pipe_keeps_output_and_errors_apart(shell: Shell) -> None:
    status, out, err = piped(shell, "printf 'a\\rb'; printf 'oops <' >&2; printf c; exit 7")
    assert (status, out, err) == (7, b"a\rbc", b"oops <")
    assert piped(shell, "cat >&2", EVERY_BYTE) == (0, b"", EVERY_BYTE)


def test_a_pipe_without_input_reads_nothing(shell: Shell) -> None:
    assert piped(shell, "cat; echo $MARK") == (0, b"m\n", b"")


def test_a_pipe_ends_with_its_command(shell: Shell) -> None:
    """Also when the input goes on, and when a daemon keeps output and errors open."""
    collected = Piped()
    read, write = os.pipe()
    try:
        status = shell.pipe("sleep 300 & echo $!; exit 3", collected.streams(read))
        assert status == 3
    finally:
        os.close(read)
        os.close(write)
        pid = int(collected.got["out"] or 0) if not isinstance(shell, LocalShell) else 0
        if isinstance(shell, LocalShell):  # the daemon has the pipes themselves
            assert eventually(lambda: bool(collected.got["out"]))
            pid = int(collected.got["out"])
        shell.run(f"kill -9 {pid}")
        collected.end()


def test_a_pipe_that_nobody_reads_ends_its_command(shell: Shell) -> None:
    read, write = os.pipe()
    os.close(read)
    with open(os.devnull, "wb") as nothing:
        try:
            status = shell.pipe(
                "echo $$ > pid; while echo y; do :; done", Streams(None, write, nothing.fileno())
            )
        except BrokenPipeError:
            status = 1
        finally:
            os.close(write)
    assert status != 0
    pid = int(shell.run("cat pid").output)
    assert eventually(lambda: not is_alive(shell, pid))


def test_a_pipe_has_a_deadline(shell: Shell) -> None:
    collected = Piped()
    try:
        with pytest.raises(ShellTimedOut):
            shell.pipe("sleep 300", collected.streams(None), timeout_s=2.0)
    finally:
        collected.end()


def test_commands_are_on_no_command_line(shell: Shell) -> None:
    """`look` finds the word only where others would, for it has its parts."""
    look = """for file in /proc/[0-9]*/cmdline; do
        { words=$(tr "\\0" " " < $file); } 2>/dev/null
        case "$words" in *"$A-$B"*) echo "$words";; esac
    done"""
    parts = {"A": "not-to", "B": "be-seen"}
    command = f": not-to-be-seen; {look}; true"
    assert shell.run(command, env=parts).output == ""
    if not isinstance(shell, ContainerShell):
        assert shell.run(in_bash(command), env=parts).output == ""
    collected = Piped()
    try:
        shell.pipe(f"export A=not-to B=be-seen; {command}", collected.streams(None))
    finally:
        assert collected.end() == (b"", b"")
