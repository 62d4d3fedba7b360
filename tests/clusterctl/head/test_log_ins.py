"""Who counts as logged in."""

from __future__ import annotations

from clusterctl.head.log_ins import MARK, Process, sessions
from clusterctl.processes import TAG


def process(name: str, title: str = "", terminal: str = "", **environment: str) -> Process:
    return Process(name, title or name, terminal, environment)


def test_daemons_and_consoles_are_nobody() -> None:
    seen = [process("sshd", "sshd: /usr/sbin/sshd -D [listener]"), process("agetty", terminal="/dev/tty1")]
    assert sessions(seen, "") == []


def test_people_by_ssh_with_and_without_a_terminal() -> None:
    seen = [
        process("sshd", "sshd: ann [priv]"),
        process("sshd", "sshd: ann@pts/0"),
        process("sshd-session", "sshd-session: bob@notty"),
    ]
    assert sessions(seen, "") == ["ann by SSH (pts/0)", "bob by SSH (notty)"]


def test_a_terminal_counts_whoever_opened_it() -> None:
    assert sessions([process("bash", terminal="/dev/pts/3")], "") == ["/dev/pts/3"]


def test_what_exec_left_running_counts_but_not_the_keeper_of_sessions() -> None:
    seen = [process("python", **{MARK: "1"}), process("tmux: server", **{MARK: "1"})]
    assert sessions(seen, "") == ["clusterctl (python)"]


def test_of_a_host_that_is_shared_only_the_machines_own_counts() -> None:
    seen = [
        process("bash", terminal="/dev/pts/1"),
        process("bash", terminal="/dev/pts/2", **{TAG: "other", MARK: "1"}),
        process("bash", terminal="/dev/pts/3", **{TAG: "mine", MARK: "1"}),
    ]
    assert sessions(seen, "mine") == ["clusterctl (bash)"]
