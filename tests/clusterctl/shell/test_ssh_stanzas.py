"""Entries of an OpenSSH configuration, as the real `ssh` reads them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from clusterctl.shell.ssh_stanzas import stanzas
from clusterctl.shell.target import SshTarget

pytestmark = pytest.mark.skipif(shutil.which("ssh") is None, reason="there is no OpenSSH client")


def read(tmp_path: Path, host: str, hosts: dict[str, SshTarget]) -> dict[str, list[str]]:
    """What `ssh` makes of a host, by option in small letters."""
    file = tmp_path / "config"
    file.write_text("\n".join(stanzas(hosts, "c-jump")))
    ran = subprocess.run(["ssh", "-G", "-F", str(file), host], capture_output=True, text=True, check=True)
    found: dict[str, list[str]] = {}
    for line in ran.stdout.splitlines():
        key, _, value = line.partition(" ")
        found.setdefault(key, []).append(value)
    return found


def test_a_machine_that_is_pinned(tmp_path: Path) -> None:
    pin = tmp_path / "pins 100%"
    pin.write_text(
        "[10.0.0.1]:2222 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA4vFt8lhqBjZ9h8LWQqNhgMhwFwRtlQeRphiDOWTG7q\n"
    )
    target = SshTarget("10.0.0.1", str(pin), 2222, "op", key_file=str(tmp_path / "my key"))
    seen = read(tmp_path, "c", {"c": target})
    assert (seen["hostname"], seen["port"], seen["user"]) == (["10.0.0.1"], ["2222"], ["op"])
    assert seen["identityfile"] == [str(tmp_path / "my key")]
    assert seen["identitiesonly"] == ["yes"]
    assert seen["stricthostkeychecking"] == ["true"]
    assert "proxyjump" not in seen


def test_a_machine_that_nobody_has_entered_yet(tmp_path: Path) -> None:
    identities = ("/home/me/.ssh/one", "/home/me/.ssh/two")
    target = SshTarget(
        "h1",
        "/state/pins",
        identities=identities,
        users_known_hosts=("/home/me/.ssh/known_hosts",),
        host_key_alias="alias",
        certificate="/home/me/.ssh/one-cert.pub",
    )
    seen = read(tmp_path, "c", {"c": target})
    assert seen["identityfile"] == list(identities)
    assert seen["identitiesonly"] == ["no"]
    assert seen["certificatefile"] == ["/home/me/.ssh/one-cert.pub"]
    assert seen["userknownhostsfile"] == ["/state/pins /home/me/.ssh/known_hosts"]
    assert seen["hostkeyalias"] == ["alias"]
    assert seen["stricthostkeychecking"] == ["accept-new"]


def test_machines_behind_others(tmp_path: Path) -> None:
    outer = SshTarget("outer", "/state/pins", user="o")
    inner = SshTarget("inner", "/state/pins", user="i", jump=outer)
    by_command = SshTarget("there", "/state/pins", proxy_command="nc -X connect %h %p")
    hosts = {
        "c": SshTarget("a", "/state/pins", jump=inner),
        "c-1": SshTarget("b", "/state/pins", jump=inner),
        "c-2": by_command,
    }
    assert read(tmp_path, "c", hosts)["proxyjump"] == ["c-jump"]
    assert read(tmp_path, "c-1", hosts)["proxyjump"] == ["c-jump"]
    jump = read(tmp_path, "c-jump", hosts)
    assert (jump["hostname"], jump["user"], jump["proxyjump"]) == (["inner"], ["i"], ["c-jump-2"])
    assert read(tmp_path, "c-jump-2", hosts)["hostname"] == ["outer"]
    assert read(tmp_path, "c-2", hosts)["proxycommand"] == ["nc -X connect %h %p"]
