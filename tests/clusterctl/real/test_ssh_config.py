"""Machines that only the operator's SSH configuration knows how to enter, on real sshds."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoscaler.provider import ShellAuthFailed
from clusterctl.shell.connections import CONNECTIONS, HostKeyChanged
from clusterctl.shell.ssh import SshShell
from clusterctl.shell.ssh_config import SshConfig
from clusterctl.shell.target import SshTarget
from tests.clusterctl.cli import Cli, alive
from tests.testbed.hosts import Host
from tests.testbed.sshd import BARE, USER, SshTestbed, missing, new_key

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=missing() or "there can be hosts here"),
    pytest.mark.timeout(400),
]

SPEC = """\
cluster_name: named
provider: {{type: ssh, head: first, workers: [{workers}]}}
idle_timeout_minutes: 5
max_workers: 2
"""
PORT = 2222


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshTestbed]:
    with SshTestbed(3, tmp_path_factory.mktemp("named"), hidden=BARE) as bed, bed.inside():
        bed.stop_sshd(bed.hosts[1])
        bed.start_sshd(bed.hosts[1], f"Port={PORT}")
        yield bed


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The operator's home directory."""
    (tmp_path / "person" / ".ssh").mkdir(parents=True, mode=0o700)
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    yield tmp_path / "person"
    CONNECTIONS.close_all()


def configured(home: Path, text: str) -> SshConfig:
    (home / ".ssh" / "config").write_text(text)
    return SshConfig.read("")


def entered(config: SshConfig, name: str, pins: Path, user: str = "", port: int = 0) -> str:
    """As whom one comes in, and where."""
    target = config.target(user, name, port, SshTarget("", str(pins)))
    try:
        return SshShell(target).run("echo $(whoami)@$(hostname)", timeout_s=60.0).output.strip()
    finally:
        CONNECTIONS.close_all()


def host_key(host: Host) -> str:
    return " ".join(host.run(["cat", "/run/host_key.pub"]).split()[:2])


def aliases(bed: SshTestbed, more: str = "") -> str:
    first, second, third = bed.hosts
    return f"""
Host first
    HostName {first.address}
Host second
    HostName {second.address}
    Port {PORT}
Host third
    HostName {third.address}
    ProxyJump first,second
Host *
    User {USER}
    IdentityFile {bed.key_file}
    {more}
"""


def test_aliases_ports_users_keys_and_jumps(bed: SshTestbed, home: Path, tmp_path: Path) -> None:
    config = configured(home, aliases(bed))
    names = ("first", "second", "third")
    assert [entered(config, name, tmp_path / "pins") for name in names] == ["op@h1", "op@h2", "op@h3"]
    third = config.target("", "third", 0, SshTarget("", str(tmp_path / "pins")))
    origin = SshShell(third).run("echo ${SSH_CONNECTION%% *}", timeout_s=60.0).output.strip()
    assert origin == bed.hosts[1].address


def test_a_certificate(bed: SshTestbed, home: Path, tmp_path: Path) -> None:
    host = bed.hosts[2]
    for name in ("authority", "mine", "other"):
        new_key(tmp_path / name)
    sign = [
        "ssh-keygen",
        "-q",
        "-s",
        str(tmp_path / "authority"),
        "-I",
        "me",
        "-n",
        USER,
        str(tmp_path / "mine.pub"),
    ]
    subprocess.run(sign, check=True)
    (tmp_path / "mine-cert.pub").rename(tmp_path / "elsewhere.pub")
    authority = (tmp_path / "authority.pub").read_text()
    host.run(["sh", "-c", f"echo '{authority}' > /run/authority.pub"])
    bed.stop_sshd(host)
    bed.start_sshd(host, "TrustedUserCAKeys=/run/authority.pub")
    try:
        text = f"Host h\n HostName {host.address}\n User {USER}\n IdentitiesOnly yes\n"
        keys = f" IdentityFile {tmp_path}/other\n IdentityFile {tmp_path}/mine\n"
        with pytest.raises(ShellAuthFailed, match="does not accept"):
            entered(configured(home, text + keys), "h", tmp_path / "pins")
        certified = configured(home, f"{text}{keys} CertificateFile {tmp_path}/elsewhere.pub\n")
        assert entered(certified, "h", tmp_path / "pins") == "op@h3"
    finally:
        bed.stop_sshd(host)
        bed.start_sshd(host)


def test_a_proxy_command_gets_the_port_and_the_user_of_the_entry(
    bed: SshTestbed, home: Path, tmp_path: Path
) -> None:
    first, second, _ = bed.hosts
    ssh = f"ssh -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -i {bed.key_file}"
    text = f"""
Host far
    HostName {second.address}
    Port 1
    User nobody
    IdentityFile {bed.key_file}
    ProxyCommand {ssh} -W %h:%p %r@{first.address}
"""
    config = configured(home, text)
    assert entered(config, "far", tmp_path / "pins", USER, PORT) == "op@h2"


@pytest.mark.parametrize("is_hashed", [False, True])
def test_host_keys_that_the_person_knows_are_adopted(
    bed: SshTestbed, home: Path, tmp_path: Path, is_hashed: bool
) -> None:
    pins, known = tmp_path / "pins", home / ".ssh" / "known_hosts"
    first, second, _ = bed.hosts
    config = configured(home, aliases(bed, "StrictHostKeyChecking yes"))
    with pytest.raises(ShellAuthFailed, match="StrictHostKeyChecking"):
        entered(config, "first", pins)
    assert not pins.exists()

    another = host_key(bed.hosts[2])  # of the same type
    known.write_text(
        f"{first.address} {host_key(first)}\n{first.address} {another}\n"
        f"[{second.address}]:{PORT} {host_key(second)}\n"
    )
    if is_hashed:
        subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(known)], check=True, capture_output=True)
        assert first.address not in known.read_text()
    assert [entered(config, name, pins) for name in ("first", "second")] == ["op@h1", "op@h2"]
    assert (
        pins.read_text()
        == f"{first.address} {host_key(first)}\n[{second.address}]:{PORT} {host_key(second)}\n"
    )
    known.unlink()
    assert entered(config, "first", pins) == "op@h1", "it is pinned"
    known.write_text(f"@revoked {first.address} {host_key(first)}\n")
    with pytest.raises(ShellAuthFailed, match="revoked"):
        entered(config, "first", pins)


def test_a_key_that_changed_is_named_with_both_files(bed: SshTestbed, home: Path, tmp_path: Path) -> None:
    pins, known = tmp_path / "my pins", home / ".ssh" / "known_hosts"
    second = bed.hosts[1]
    config = configured(home, aliases(bed))
    wrong = f"[{second.address}]:{PORT} {host_key(bed.hosts[0])}\n"
    known.write_text(wrong)
    with pytest.raises(HostKeyChanged):
        entered(config, "second", pins)
    pins.write_text(wrong)
    with pytest.raises(HostKeyChanged, match=r"second .*installed anew") as changed:
        entered(config, "second", pins)
    commands = str(changed.value).partition("remove its old key: ")[2].partition(";")[0]
    assert str(known) in commands
    assert str(pins) in commands
    subprocess.run(["sh", "-c", commands], check=True, capture_output=True)
    assert entered(config, "second", pins) == "op@h2"
    known.write_text(f"@revoked {wrong}@revoked [{second.address}]:{PORT} {host_key(second)}\n")
    pins.unlink()
    with pytest.raises(ShellAuthFailed, match="revoked"):
        entered(config, "second", pins)


def test_a_cluster_of_machines_by_their_aliases(bed: SshTestbed, home: Path, tmp_path: Path) -> None:
    """The head knows nothing of the configuration, and enters its workers all the same; also one that the spec names no
    more is given back."""
    configured(home, aliases(bed))
    cli = Cli(tmp_path)
    spec = tmp_path / "named.yaml"
    spec.write_text(SPEC.format(workers="second, third"))
    try:
        ran = cli.run("up", "-y", str(spec), timeout_s=170)
        assert ran.status == 0, ran.err
        assert cli.wait(lambda status: len(alive(status)) == 3, 60.0)
        assert "nothing to do" in cli.run("up", "-y", str(spec)).out
        assert cli.run("doctor").status == 0
        spec.write_text(SPEC.format(workers="third"))
        ran = cli.run("up", "-y", str(spec), timeout_s=170)
        assert ran.status == 0, ran.err
        assert cli.wait(lambda status: len(alive(status)) == 2, 120.0)
        left = bed.hosts[1].run(["sh", "-c", f"ls -A /home/{USER} | grep clusterctl || true"])
        assert left == ""
    finally:
        ran = cli.run("down", "-y", str(spec), timeout_s=120)
    assert ran.status == 0, ran.err
    for host in bed.hosts:
        assert "clusterctl" not in host.run(
            ["sh", "-c", f"ls -A /home/{USER}; cat /home/{USER}/.ssh/authorized_keys"]
        )
