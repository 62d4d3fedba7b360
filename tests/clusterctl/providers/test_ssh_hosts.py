"""How a spec writes machines, and how they are reached."""

from __future__ import annotations

import pytest

from clusterctl.providers.ssh import hosts
from clusterctl.shell.ssh_config import SshConfig
from clusterctl.shell.target import SshTarget
from clusterctl.spec.load import load_text

BASE = SshTarget("", "known", user="me")


@pytest.mark.parametrize(
    ("text", "host", "port", "user", "name"),
    [
        ("h1", "h1", 22, "me", "h1"),
        ("you@h1.example.com:2222", "h1.example.com", 2222, "you", "h1.example.com:2222"),
        ("fd93::1", "fd93::1", 22, "me", "fd93::1"),
        ("you@[fd93::1]:99", "fd93::1", 99, "you", "[fd93::1]:99"),
    ],
)
def test_how_machines_are_written(text: str, host: str, port: int, user: str, name: str) -> None:
    target = hosts.parse(text, BASE)
    assert (target.host, target.port, target.user) == (host, port, user)
    assert hosts.name_of(target) == name


@pytest.mark.parametrize("text", ["", "h1:ssh", "me@", "[::1"])
def test_what_is_no_machine(text: str) -> None:
    with pytest.raises(ValueError, match="write HOST"):
        hosts.parse(text, BASE)


def test_machines_may_be_behind_several_others() -> None:
    auth = load_text(
        "cluster_name: c\nprovider: {type: ssh, head: h}\nauth: {ssh_proxy_jump: 'a, you@b:9'}\n"
    ).auth
    base = hosts.operators_base(auth, "known", SshConfig(""))
    assert base.jump is not None
    assert (base.jump.host, base.jump.port, base.jump.user) == ("b", 9, "you")
    assert base.jump.jump is not None
    assert base.jump.jump.host == "a"
    assert hosts.parse("h", base).jump == base.jump
