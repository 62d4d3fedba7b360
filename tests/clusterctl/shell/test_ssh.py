"""SSH, on real sshds: who is told what when it does not work, and that one connection serves all. What every shell
must keep is in tests/contract."""

from __future__ import annotations

import contextlib
import os
import pathlib
import pty
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from autoscaler.provider import ShellAuthFailed, ShellError, ShellLost, ShellRefused, ShellTimedOut
from clusterctl.shell import connections, keys, ssh, terminal, watched
from clusterctl.shell.channel import Channel
from clusterctl.shell.connections import CONNECTIONS, HostKeyChanged
from clusterctl.shell.ssh import SshShell
from clusterctl.shell.target import SshTarget
from tests.polling import eventually
from tests.testbed.sshd import BARE, USER, SshTestbed, missing, new_key
from tests.testbed.sshd import connections as connections_made

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "there can be hosts here")


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshTestbed]:
    with SshTestbed(2, tmp_path_factory.mktemp("ssh"), hidden=BARE) as bed, bed.inside():
        yield bed


@pytest.fixture
def target(bed: SshTestbed, tmp_path: pathlib.Path) -> Iterator[SshTarget]:
    """The first host; nothing is known of it yet."""
    yield SshTarget(bed.hosts[0].address, str(tmp_path / "known"), user=USER, key_file=str(bed.key_file))
    CONNECTIONS.close_all()


def whoami(target: SshTarget, timeout_s: float = 20.0) -> str:
    return SshShell(target).run("echo $(whoami)@$(hostname)", timeout_s=timeout_s).output.strip()


def connections_to(bed: SshTestbed) -> int:
    """How many connections the first host's sshd has."""
    return int(bed.hosts[0].run(["sh", "-c", "ss -Htn state established sport = :22 | wc -l"]))


@contextlib.contextmanager
def another_sshd(bed: SshTestbed, *options: str) -> Iterator[None]:
    """While it lasts, the first host has a second one."""
    host = bed.hosts[0]
    host.run(["mv", "/run/sshd.pid", "/run/first.pid"])
    bed.start_sshd(host, *options)
    try:
        yield
    finally:
        bed.stop_sshd(host)
        host.run(["mv", "/run/first.pid", "/run/sshd.pid"])


def test_refused(bed: SshTestbed, target: SshTarget) -> None:
    bed.stop_sshd(bed.hosts[0])
    try:
        with pytest.raises(ShellRefused, match="refuses the connection"):
            whoami(target)
    finally:
        bed.start_sshd(bed.hosts[0])
    assert whoami(target) == "op@h1"


def test_no_answer(bed: SshTestbed, target: SshTarget) -> None:
    with bed.mute(bed.hosts[0]), pytest.raises(ShellTimedOut, match="does not answer"):
        whoami(target, timeout_s=0.5)


def test_no_way_there(bed: SshTestbed, target: SshTarget) -> None:
    with pytest.raises(ShellTimedOut):
        whoami(replace(target, host="10.94.0.1"), timeout_s=0.5)


def test_an_address_that_does_not_answer_leaves_time_for_the_next(
    bed: SshTestbed, target: SshTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host.address, 22)) for host in bed.hosts[::-1]]
    ask = socket.getaddrinfo

    def answer(host: str, *arguments: Any, **options: Any) -> Any:
        return addresses if host == "both" else ask(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    monkeypatch.setattr(connections, "CONNECT_S", 6.0)
    with bed.mute(bed.hosts[1]):
        assert whoami(replace(target, host="both"), timeout_s=60.0) == "op@h1"


def test_an_unknown_name(target: SshTarget) -> None:
    with pytest.raises(ShellError, match="not known"):
        whoami(replace(target, host="no-such-host.invalid"))


def test_whoever_hangs_up_is_not_ready(bed: SshTestbed, target: SshTarget) -> None:
    hang_up = (
        "import socket; s = socket.create_server(('', 99)); print(flush=True)\nwhile 1: s.accept()[0].close()"
    )
    with bed.hosts[0].popen(["python3", "-c", hang_up], stdout=subprocess.PIPE) as server:
        server.stdout.readline()
        try:
            with pytest.raises(ShellRefused):
                whoami(replace(target, port=99))
        finally:
            server.kill()


def test_whoever_greets_and_is_silent_then_holds_nobody_up(bed: SshTestbed, target: SshTarget) -> None:
    greet = (
        "import socket; s = socket.create_server(('', 98)); print(flush=True)\n"
        "c = s.accept()[0]; c.sendall(b'SSH-2.0-x\\r\\n')\nwhile c.recv(9999): pass"
    )
    with bed.hosts[0].popen(["python3", "-c", greet], stdout=subprocess.PIPE) as server:
        server.stdout.readline()
        with pytest.raises(ShellTimedOut, match="does not answer"):
            whoami(replace(target, port=98), timeout_s=1.0)
    assert eventually(
        lambda: not [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
    )


def test_an_answer_to_a_key_that_does_not_come_is_no_refusal(bed: SshTestbed, target: SshTarget) -> None:
    slow = (
        "AuthorizedKeysCommand=/bin/sleep 60",
        "AuthorizedKeysCommandUser=root",
        "AuthorizedKeysFile=none",
    )
    with another_sshd(bed, "Port=2222", *slow):
        with pytest.raises(ShellTimedOut, match="does not answer"):
            whoami(replace(target, port=2222), timeout_s=2.0)
        bed.hosts[0].run(["pkill", "sleep"])


def test_a_key_that_is_not_accepted(target: SshTarget, tmp_path: pathlib.Path) -> None:
    new_key(tmp_path / "other")
    with pytest.raises(ShellAuthFailed, match="does not accept"):
        whoami(replace(target, key_file=str(tmp_path / "other")))
    with pytest.raises(ShellAuthFailed, match="No such file"):
        whoami(replace(target, key_file=str(tmp_path / "none")))
    (tmp_path / "broken").write_text("no key")
    with pytest.raises(ShellAuthFailed):
        whoami(replace(target, key_file=str(tmp_path / "broken")))


def test_a_key_with_a_passphrase_needs_the_agent(
    bed: SshTestbed, target: SshTarget, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = tmp_path / "locked"
    locked.write_bytes(bed.key_file.read_bytes())
    locked.chmod(0o600)
    subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", "secret", "-f", locked], check=True)
    with pytest.raises(ShellAuthFailed, match="passphrase"):
        whoami(replace(target, key_file=str(locked)))
    monkeypatch.setenv("HOME", str(tmp_path))  # no keys of whoever runs this
    agent = str(tmp_path / "agent")
    with subprocess.Popen(["ssh-agent", "-D", "-a", agent], stdout=subprocess.DEVNULL) as process:
        try:
            assert eventually(lambda: os.path.exists(agent))
            monkeypatch.setenv("SSH_AUTH_SOCK", agent)
            with pytest.raises(ShellAuthFailed):
                whoami(replace(target, key_file=""))
            subprocess.run(["ssh-add", "-q", bed.key_file], check=True)
            assert whoami(replace(target, key_file="")) == "op@h1"
        finally:
            process.kill()


def test_an_agent_that_does_not_answer_is_passed_over(
    bed: SshTestbed, target: SshTarget, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
    monkeypatch.setattr(keys, "_ANSWER_S", 0.2)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "agent"))
        listener.listen()
        with pytest.raises(ShellAuthFailed, match=r"the ssh-agent at .*/agent did not answer within 0\.2 s"):
            whoami(replace(target, key_file=""))
        (tmp_path / ".ssh").mkdir()
        shutil.copy(bed.key_file, tmp_path / ".ssh" / "id_ed25519")
        assert whoami(replace(target, key_file="")) == "op@h1"


def test_a_changed_host_key_is_refused_until_it_is_forgotten(bed: SshTestbed, target: SshTarget) -> None:
    known = pathlib.Path(target.known_hosts)
    assert whoami(target) == "op@h1"
    pinned = known.read_text()
    assert known.stat().st_mode & 0o777 == 0o600
    CONNECTIONS.close_all()
    assert whoami(target) == "op@h1"
    assert known.read_text() == pinned
    bed.change_host_key(bed.hosts[0])
    CONNECTIONS.close_all()
    with pytest.raises(HostKeyChanged, match=f"remove its old key: ssh-keygen -R {target.host} -f {known};"):
        whoami(target)
    assert known.read_text() == pinned
    known.unlink()
    assert whoami(target) == "op@h1"


def test_other_ports_users_and_ip_6(bed: SshTestbed, target: SshTarget) -> None:
    host = bed.hosts[0]
    with another_sshd(bed, "Port=2222"):
        assert whoami(replace(target, host=host.address_6, port=2222, user="root")) == "root@h1"
        assert f"[{host.address_6}]:2222 ssh-ed25519" in pathlib.Path(target.known_hosts).read_text()


def test_through_a_proxy_command_and_through_another_machine(bed: SshTestbed, target: SshTarget) -> None:
    behind = replace(target, host=bed.hosts[1].address)
    options = f"-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -i {bed.key_file}"
    proxied = replace(behind, proxy_command=f"ssh {options} -W %h:%p %r@{target.host}")
    assert whoami(proxied) == "op@h2"
    with pytest.raises(ShellRefused, match="its proxy command says: no way"):
        whoami(replace(behind, proxy_command="sh -c 'echo no way >&2; exit 1'"))
    jumping = replace(behind, jump=target)
    assert whoami(jumping) == "op@h2"
    origin = SshShell(jumping).run("echo ${SSH_CONNECTION%% *}").output.strip()
    assert origin == bed.hosts[0].address
    with pytest.raises(ShellRefused):
        whoami(replace(jumping, port=1))


def test_one_connection_serves_all_shells(bed: SshTestbed, target: SshTarget) -> None:
    answers: list[str] = []
    threads = [threading.Thread(target=lambda: answers.append(whoami(target, 60.0))) for _ in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == ["op@h1"] * 30
    assert connections_to(bed) == 1
    CONNECTIONS.close(target)
    assert eventually(lambda: connections_to(bed) == 0)


def test_a_refused_session_is_asked_for_again(target: SshTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of refusals at the same time paramiko gives the reason to one only."""
    import paramiko

    assert whoami(target) == "op@h1"
    refusals = [paramiko.SSHException("Unable to open channel."), paramiko.ChannelException(4, "full")]
    open_channel = paramiko.Transport.open_channel

    def refused(transport: paramiko.Transport, *arguments: Any, **options: Any) -> paramiko.Channel:
        if refusals:
            raise refusals.pop()
        return open_channel(transport, *arguments, **options)

    monkeypatch.setattr(paramiko.Transport, "open_channel", refused)
    assert whoami(target) == "op@h1"
    assert refusals == []


def test_sessions_that_come_too_late_are_closed_and_forgotten(bed: SshTestbed, target: SshTarget) -> None:
    assert whoami(target) == "op@h1"
    before = connections_made(bed.hosts[0])
    for count in (2, 12, 2, 2, 2, 2):  # together, and the second time alone, more than sshd has places for
        bed.hosts[0].run(["pkill", "-STOP", "-u", USER, "sshd"])
        try:
            for _ in range(count):
                with pytest.raises(ShellTimedOut, match="opens no session in time"):
                    whoami(target, 0.1)
        finally:
            bed.hosts[0].run(["pkill", "-CONT", "-u", USER, "sshd"])
        assert eventually(lambda: not any(t.name == "waits for SSH" for t in threading.enumerate()))
    assert whoami(target) == "op@h1"
    assert connections_made(bed.hosts[0]) == before


def test_machines_that_do_not_answer_cost_a_jump_host_nothing(bed: SshTestbed, target: SshTarget) -> None:
    assert whoami(target) == "op@h1"
    before = connections_made(bed.hosts[0])
    bed.cut_off(bed.hosts[1])
    try:
        for _ in range(4):
            with pytest.raises(ShellTimedOut, match=r"opens no way to 10\.93\.0\.2 in time"):
                whoami(replace(target, host=bed.hosts[1].address, jump=target), timeout_s=0.1)
    finally:
        bed.plug_in(bed.hosts[1])
    assert whoami(target) == "op@h1"
    assert connections_made(bed.hosts[0]) == before


def test_a_lost_connection_is_made_again(bed: SshTestbed, target: SshTarget) -> None:
    assert whoami(target) == "op@h1"
    bed.hosts[0].run(["pkill", "-u", USER, "sshd"])
    assert whoami(target) == "op@h1"


def test_a_command_whose_connection_is_lost_is_ended(bed: SshTestbed, target: SshTarget) -> None:
    def cut(line: str) -> None:
        bed.hosts[0].run(["pkill", "-u", USER, "sshd"])

    with pytest.raises(ShellError, match="lost while a command ran"):
        SshShell(target).run("echo begins; sleep 300", on_output=cut)
    gone = [
        "sh",
        "-c",
        f"pgrep -u {USER} sleep || echo none",
    ]  # it is killed; its entry goes when it is reaped
    assert eventually(lambda: bed.hosts[0].run(gone) == "none\n")


def test_a_machine_that_falls_silent_is_noticed(
    bed: SshTestbed, target: SshTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched, "SILENCE_S", 0.5)
    monkeypatch.setattr(watched, "KEEPALIVE_S", 1)
    monkeypatch.setattr(ssh, "_KILL_S", 0.1)
    try:
        with pytest.raises(ShellLost, match=r"op@10\.93\.0\.1:22 did not answer for 0\.5 s"):
            SshShell(target).run("echo begins; sleep 300", on_output=lambda line: bed.cut_off(bed.hosts[0]))
    finally:
        bed.plug_in(bed.hosts[0])
    bed.hosts[0].run(["pkill", "-u", USER, "sleep"])


def test_a_script_of_ours_that_does_not_end_in_time_is_no_answer(target: SshTarget) -> None:
    shell = SshShell(target, {"A": "a b"})
    said = shell.ask(
        'cat; echo "$A $B"; echo no >&2; trap "echo trapped" EXIT; exit 3 # (', env={"B": "'c'"}, timeout_s=60
    )
    assert (said.exit_status, said.output) == (3, "a b 'c'\nno\ntrapped\n")
    assert SshShell(target, guard="echo no; exit 44\n").ask("echo yes", timeout_s=60).output == "no\n"
    for limit_s in (1.0, 30.0):  # by which it has begun also on a loaded machine
        with pytest.raises(ShellTimedOut, match=f"did not answer within {limit_s} s"):
            shell.ask("echo $$ > ~/asked; sleep 300; :", timeout_s=limit_s)
        if shell.run("[ -s ~/asked ]").exit_status == 0:
            break
    ended = 'read -r pid < ~/asked && ! kill -0 "$pid" 2>/dev/null'
    assert eventually(lambda: shell.run(ended).exit_status == 0)
    shell.run("rm ~/asked")


def test_what_a_command_changed_is_seen_by_the_next(target: SshTarget) -> None:
    shell = SshShell(target)
    shell.run("echo 'export SEEN=1' > ~/.rc; cp .bashrc .kept; cat .rc .kept > .bashrc")
    try:
        assert shell.ask("echo $SEEN", timeout_s=60).output == "1\n"
        assert shell.run("echo $SEEN").output == "1\n"
    finally:
        shell.run("mv .kept .bashrc; rm .rc")


def test_a_machine_that_allows_one_session_at_a_time_is_enough(bed: SshTestbed, target: SshTarget) -> None:
    with another_sshd(bed, "Port=2222", "MaxSessions=1"):
        one = replace(target, port=2222)
        answers: list[str] = []
        threads = [threading.Thread(target=lambda: answers.append(whoami(one, 60.0))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert answers == ["op@h1"] * 4


def test_what_log_in_scripts_say_is_no_output(bed: SshTestbed, target: SshTarget) -> None:
    rc = f"/home/{USER}/.bashrc"
    bed.hosts[0].run(["sh", "-c", f"cp {rc} {rc}.kept; sed -i '1i echo WELCOME' {rc}"])
    try:
        assert whoami(target) == "op@h1"
    finally:
        bed.hosts[0].run(["mv", f"{rc}.kept", rc])


def test_a_slow_machine_gets_its_files_all_the_same(bed: SshTestbed, target: SshTarget) -> None:
    bed.slow_down(bed.hosts[1], "8mbit")
    shell = SshShell(replace(target, host=bed.hosts[1].address))
    assert shell.run("wc -c", stdin=[os.urandom(1_000_000)]).output.strip() == "1000000"


TERMINAL = """
import sys
from clusterctl.shell.target import SshTarget
from clusterctl.shell.ssh import SshShell
target = SshTarget(sys.argv[1], sys.argv[2], user=sys.argv[3], key_file=sys.argv[4])
sys.exit(SshShell(target, {"MARK": "m"}).interactive(sys.argv[5], env={"MORE": "n"}))
"""


def test_a_terminal_there(target: SshTarget) -> None:
    pid, master = pty.fork()
    if pid == 0:
        command = (
            "tty >/dev/null && echo $MARK$MORE ready; read line; stty size; "
            "trap 'exit 9' INT; echo now; while :; do sleep 1; done"
        )
        words = [target.host, target.known_hosts, target.user, target.key_file, command]
        os.execv(sys.executable, [sys.executable, "-c", TERMINAL, *words])
    import fcntl
    import struct
    import termios

    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 31, 77, 0, 0))
    shown = b""
    typed = [(b"mn ready", b"x\n"), (b"now", b"\x03")]
    while True:
        try:
            shown += os.read(master, 4096)
        except OSError:
            break
        if typed and typed[0][0] in shown:
            os.write(master, typed.pop(0)[1])
    os.close(master)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    assert b"31 77" in shown
    assert SshShell(target).run("ls /tmp").output == ""


def attach(target: SshTarget, command: str, monkeypatch: pytest.MonkeyPatch) -> int:
    with open(os.devnull) as stdin, monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", stdin)
        patch.setattr(sys, "stdout", sys.__stdout__)
        return SshShell(target).interactive(command, env={"SECRET": "s"})


def test_a_terminal_that_is_refused_is_an_error_and_leaves_nothing(
    bed: SshTestbed, target: SshTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    with another_sshd(bed, "Port=2222", "PermitTTY=no"):
        with pytest.raises(ShellError, match=r"gives no terminal: its sshd refuses one \(PermitTTY"):
            attach(replace(target, port=2222), "echo $SECRET", monkeypatch)
        CONNECTIONS.close_all()
    assert SshShell(target).run("ls /tmp").output == ""


def test_a_terminal_whose_connection_is_lost_is_an_error_and_leaves_nothing(
    bed: SshTestbed, target: SshTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(*_: object) -> None:
        bed.hosts[0].run(["pkill", "-u", USER, "sshd"])

    ask, execute = Channel.terminal, Channel.execute

    def ask_cut_off(channel: Channel, *arguments: Any) -> None:
        lose()
        ask(channel, *arguments)

    def execute_cut_off(channel: Channel, command: str, deadline: float) -> None:
        if "; rm -f" in command:  # the terminal's program; the command itself is in a file
            lose()
        execute(channel, command, deadline)

    for name, stand_in in (("terminal", ask_cut_off), ("execute", execute_cut_off)):
        with monkeypatch.context() as patch:
            patch.setattr(Channel, name, stand_in)
            with pytest.raises(ShellLost):
                attach(target, "sleep 300", monkeypatch)
        assert SshShell(target).run("ls /tmp").output == ""
    monkeypatch.setattr(terminal, "connect", lambda remote: (remote.recv(65536), lose(), remote.recv(65536)))
    with pytest.raises(ShellLost, match="was lost"):
        attach(target, "echo begun; sleep 300", monkeypatch)


def test_names_of_variables_are_checked(target: SshTarget) -> None:
    with pytest.raises(ValueError, match="a;b"):
        SshShell(target, {"a;b": "c"}).run("true")
