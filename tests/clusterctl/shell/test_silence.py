"""Hosts that fall silent in the middle: an sshd that is frozen, or a link that is cut, here and behind a jump host or
a proxy command. Every wait ends with a named error, and nothing is left."""

from __future__ import annotations

import os
import pathlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from autoscaler.provider import ShellLost, ShellTimedOut
from clusterctl.shell import ssh, terminal, watched
from clusterctl.shell.channel import Channel
from clusterctl.shell.connections import CONNECTIONS
from clusterctl.shell.running import Running
from clusterctl.shell.ssh import SshShell
from clusterctl.shell.target import SshTarget
from tests.polling import eventually
from tests.testbed.sshd import USER, SshTestbed, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "there can be hosts here")

WAYS = {
    "a frozen host": ("direct", "freeze", 1),
    "a frozen jump host": ("jump", "freeze", 0),
    "a host cut off behind a proxy command": ("proxy", "cut", 1),
}


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshTestbed]:
    with SshTestbed(2, tmp_path_factory.mktemp("silence")) as bed, bed.inside():
        yield bed


@pytest.fixture(autouse=True)
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched, "TURN_S", 0.1)


class Silenced:
    """A shell of a host, and how the host or what leads there falls silent."""

    def __init__(self, bed: SshTestbed, way: str, folder: pathlib.Path) -> None:
        route, self._how, number = WAYS[way]
        self._bed, self._host = bed, bed.hosts[number]
        known, key = str(folder / "known"), str(bed.key_file)
        first = SshTarget(bed.hosts[0].address, known, user=USER, key_file=key)
        self.target = replace(first, host=bed.hosts[1].address)
        if route == "jump":
            self.target = replace(self.target, jump=first)
        elif route == "proxy":
            options = f"-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -i {key}"
            self.target = replace(
                self.target, proxy_command=f"ssh {options} -W %h:%p {USER}@{bed.hosts[0].address}"
            )
        self.shell = SshShell(self.target)
        self._is_silent = False
        self._limits = pytest.MonkeyPatch()

    def begin(self, silence_s: float = 0.3) -> None:
        """From now on it is silent, and less is waited for: not before, when a loaded machine may need its time."""
        if not self._is_silent:
            self._is_silent = True
            self._limits.setattr(watched, "KEEPALIVE_S", 0.1)
            self._limits.setattr(watched, "SILENCE_S", silence_s)
            self._limits.setattr(ssh, "_KILL_S", 0.2)
            if self._how == "cut":
                self._bed.cut_off(self._host)
            else:
                self._host.run(["pkill", "-STOP", "sshd"])

    def end(self) -> None:
        assert self._is_silent
        self._is_silent = False
        self._limits.undo()
        if self._how == "cut":
            self._bed.plug_in(self._host)
        else:
            self._host.run(["pkill", "-CONT", "sshd"])
        CONNECTIONS.close_all()
        self._bed.hosts[1].run(["sh", "-c", f"pkill -KILL -u {USER} '^(sleep|yes|cat|tar)$'; true"])


@pytest.fixture(params=WAYS)
def silenced(request: pytest.FixtureRequest, bed: SshTestbed, tmp_path: pathlib.Path) -> Iterator[Silenced]:
    before = {*threading.enumerate()}
    silenced = Silenced(bed, request.param, tmp_path)
    assert silenced.shell.run("echo here", timeout_s=60.0).output == "here\n"
    yield silenced
    CONNECTIONS.close_all()
    assert eventually(lambda: {*threading.enumerate()} <= before)


def test_each_wait_ends(silenced: Silenced, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = silenced.shell

    requested_silence_s = 0.3

    def requested(channel: Channel, command: str, deadline: float) -> None:
        silenced.begin(requested_silence_s)
        execute(channel, command, deadline)

    execute = Channel.execute
    with monkeypatch.context() as patch:
        patch.setattr(Channel, "execute", requested)
        with pytest.raises(ShellLost, match="did not answer"):
            shell.run("echo never")
        silenced.end()
        patch.setattr(ssh, "_BEGIN_S", 0.3)
        requested_silence_s = 30.0
        with pytest.raises(ShellTimedOut, match="did not begin to run a command"):
            shell.run("echo never")
    silenced.end()

    def endless() -> Iterator[bytes]:
        yield bytes(1_000_000)
        silenced.begin()
        while True:
            yield bytes(1_000_000)

    with pytest.raises(ShellLost, match="did not answer"):
        shell.run("cat > /dev/null", stdin=endless())
    silenced.end()

    def joined(remote: Any) -> None:
        remote.recv(65536)
        silenced.begin()
        remote.recv(65536)

    with monkeypatch.context() as patch, open(os.devnull) as stdin:
        patch.setattr(sys, "stdin", stdin)
        patch.setattr(terminal, "connect", joined)
        with pytest.raises(ShellLost, match="did not answer"):
            shell.interactive("echo begun; sleep 300")
    silenced.end()

    def finish(running: Running, take: Callable[[bytes], None]) -> int:
        def taken(data: bytes) -> None:
            silenced.begin(30.0)
            running._deadline = time.monotonic() + 0.3  # not before: until now it may have needed its time
            take(data)

        return original_finish(running, taken)

    original_finish = Running.finish
    with monkeypatch.context() as patch:
        patch.setattr(Running, "finish", finish)
        with pytest.raises(ShellTimedOut, match=r"did not end within 60\.0 s"):
            shell.run("echo begun; sleep 300", timeout_s=60.0)
    silenced.end()
