"""What the operator's SSH configuration makes of a machine's name."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from clusterctl.errors import UsageProblem
from clusterctl.shell.ssh_config import SshConfig
from clusterctl.shell.target import SshTarget

BASE = SshTarget("", "/pins")


def target(text: str, host: str, user: str = "", port: int = 0, base: SshTarget = BASE) -> SshTarget:
    return SshConfig(text).target(user, host, port, base)


def test_without_a_configuration_a_machine_is_what_it_was() -> None:
    found = target("", "h", "op", 2222)
    assert (found.name, found.user, found.host, found.port, found.identities) == ("", "op", "h", 2222, ())
    assert (found.jump, found.proxy_command, found.is_strict) == (None, "", False)


def test_an_alias(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.touch()
    text = f"""
Host gpu
    HostName 10.0.0.5
    Port 2222
    User me
    IdentityFile {tmp_path}/missing
    IdentityFile {key}
    IdentitiesOnly yes
    CertificateFile {key}-cert.pub
    HostKeyAlias gpus
    UserKnownHostsFile /a "/b c"
    GlobalKnownHostsFile none
    StrictHostKeyChecking yes
Host *
    User nobody
"""
    found = target(text, "gpu")
    assert (found.name, found.user, found.host, found.port) == ("gpu", "me", "10.0.0.5", 2222)
    assert (found.identities, found.identities_only) == ((str(key),), True)
    assert found.certificate == f"{key}-cert.pub"
    assert (found.host_key_alias, found.users_known_hosts) == ("gpus", ("/a", "/b c"))
    assert found.is_strict
    assert str(found) == "gpu (me@10.0.0.5:2222)"
    assert target(text, "other").user == "nobody"


def test_what_the_spec_says_goes_first(tmp_path: Path) -> None:
    text = f"Host h\n User me\n Port 1\n IdentityFile {tmp_path}\n ProxyCommand nc %h %p\n ProxyJump j\n"
    found = target(text, "h", "op", 2)
    assert (found.user, found.port) == ("op", 2)
    base = replace(BASE, user="all", key_file="/key", proxy_command="own")
    found = target(text, "h", base=base)
    assert (found.user, found.identities, found.key_file, found.proxy_command, found.jump) == (
        "all",
        (),
        "/key",
        "own",
        None,
    )


def test_a_port_in_the_entry_is_part_of_the_name() -> None:
    text = "Host gpu\n HostName 10.0.0.5\n"
    assert [target(text, "gpu", port=port).name for port in (0, 22, 23)] == ["gpu", "gpu", "gpu:23"]
    assert target("Host h\n Port 23\n", "h").name == "h"
    assert target(text, "10.0.0.5").name == ""


def test_ways_through_other_machines() -> None:
    text = """
Host inner
    ProxyJump first,op@second:23
Host second
    HostName 10.0.0.2
Host first
    User one
    ProxyCommand nc %h %p
Host free
    ProxyJump none
Host *
    User me
"""
    inner = target(text, "inner")
    assert inner.jump is not None
    second = inner.jump
    assert (str(second), second.jump is not None) == ("second:23 (op@10.0.0.2:23)", True)
    assert second.jump is not None
    assert (second.jump.user, second.jump.host, second.jump.jump) == ("one", "first", None)
    assert second.jump.proxy_command == "nc %h %p"
    assert target(text, "free").jump is None
    with pytest.raises(UsageProblem, match="leads back to itself"):
        target("Host a\n ProxyJump b\nHost b\n ProxyJump a\n", "a")


def test_included_files_are_read_in_their_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".ssh"
    folder.mkdir()
    (folder / "config").write_text("Include conf.d/*\nHost h\n  Include ports\n  User me\n")
    (folder / "conf.d").mkdir()
    (folder / "conf.d" / "a").write_text("Host a\n  HostName 10.0.0.1\n")
    (folder / "conf.d" / "b").write_text("Host b\n  HostName 10.0.0.2\n")
    (folder / "ports").write_text("Port 23\n")
    config = SshConfig.read("")
    seen = [config.target("", host, 0, BASE) for host in ("a", "b", "h")]
    assert [(one.host, one.port, one.user) for one in seen] == [
        ("10.0.0.1", 22, ""),
        ("10.0.0.2", 22, ""),
        ("h", 23, "me"),
    ]
    assert SshConfig.read("none").target("", "a", 0, BASE).host == "a"
    assert SshConfig.read(str(tmp_path / "missing")).target("", "a", 0, BASE).host == "a"
    (folder / "ports").write_text("Include ports\n")
    with pytest.raises(UsageProblem, match="includes files that include others"):
        SshConfig.read("")


@pytest.mark.parametrize(
    "text",
    ["Host\n", "Match host\n", 'Host "a\n', "Host h\n Port many\n", "Host h\n ProxyJump a:many\n"],
)
def test_what_cannot_be_understood_is_said(text: str) -> None:
    with pytest.raises(UsageProblem, match="is not understood") as wrong:
        target(text, "h")
    assert "auth.ssh_config" in wrong.value.hint


def test_user_files_begin_in_the_home() -> None:
    assert target("Host x\n", "h").users_known_hosts[:1] == (os.path.expanduser("~/.ssh/known_hosts"),)


def read(folder: Path, text: str, **included: str) -> SshConfig:
    """A configuration in a file, beside the files that it includes by their names."""
    for name, content in included.items():
        (folder / name).write_text(content)
    (folder / "config").write_text(text.replace("Include ", f"Include {folder}/"))
    return SshConfig.read(str(folder / "config"))


def test_comments_behind_values(tmp_path: Path) -> None:
    text = 'Host a # one\n HostName 1.2.3.4 # prod\n User "b#c" # me\n Port 2200 # x\n ProxyCommand nc # %h\n# all\n'
    found = read(tmp_path, text).target("", "a", 0, BASE)
    assert (found.host, found.user, found.port, found.proxy_command) == (
        "1.2.3.4",
        "b#c",
        2200,
        "nc # %h",
    )


def test_what_is_included_inside_a_block_belongs_to_it(tmp_path: Path) -> None:
    text = "Host work\n Include inner\nHost *\n User everybody\n"
    inner = f"User inside\nInclude {tmp_path}/nested\nPort 2200\n"
    config = read(tmp_path, text, inner=inner, nested="HostName n\n")
    work, other = (config.target("", host, 0, BASE) for host in ("work", "other"))
    assert (work.user, work.host, work.port) == ("inside", "n", 2200)
    assert (other.user, other.host, other.port) == ("everybody", "other", 22)


def test_blocks_of_a_file_that_is_included_inside_a_block_are_refused(tmp_path: Path) -> None:
    text = "Host work\n Include inner\nHost *\n StrictHostKeyChecking yes\n"
    with pytest.raises(
        UsageProblem, match=r"inner has the line `Host \*`, and is included inside `Host work`"
    ):
        read(tmp_path, text, inner="Host *\n StrictHostKeyChecking no\n")


@pytest.mark.parametrize(
    "text", ["Host *\n Include inner\n", "Include inner\n", "Match all\n Include inner\n"]
)
def test_blocks_of_a_file_that_is_included_for_every_host_are_read(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text, inner="Host a\n User me\n").target("", "a", 0, BASE).user == "me"


@pytest.mark.parametrize(
    "line", ["Match localnetwork 10.9.9.0/24", "Match host a tagged x", "Match !nonsense y"]
)
def test_criteria_that_are_not_known_are_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(UsageProblem, match="is not understood here"):
        read(tmp_path, f"{line}\n ProxyJump other\n")


@pytest.mark.parametrize(
    "line", ["Match host a user b", "Match originalhost a,b", "Match exec 'test -e /x # y'", "Match all"]
)
def test_criteria_that_are_known(tmp_path: Path, line: str) -> None:
    read(tmp_path, f"{line}\n User me\n")


def test_true_means_yes(tmp_path: Path) -> None:
    found = read(tmp_path, "Host *\n StrictHostKeyChecking true\n IdentitiesOnly true\n").target(
        "", "a", 0, BASE
    )
    assert found.is_strict
    assert found.identities_only
