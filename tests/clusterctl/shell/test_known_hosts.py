"""What a file of host keys says of one machine."""

from __future__ import annotations

import pathlib

import paramiko
import pytest
from paramiko.hostkeys import HostKeyEntry, InvalidHostKey

from autoscaler.provider import ShellAuthFailed
from clusterctl.shell import known_hosts
from clusterctl.shell.target import SshTarget


def key() -> paramiko.PKey:
    return paramiko.ECDSAKey.generate()


def line(machine: str, key: paramiko.PKey) -> str:
    return f"{machine} {key.get_name()} {key.get_base64()}\n"


def loaded(file: pathlib.Path, machine: str) -> list[paramiko.PKey]:
    return known_hosts.load(str(file), machine)


def test_a_machine_has_its_own_lines(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "known"
    assert not loaded(file, "10.0.0.1")
    ours, others = key(), key()
    rest = "".join(line(f"10.0.0.1{number}", others) for number in range(20))
    file.write_text(f"# keys\n\n{line('[10.0.0.1]:23', others)}{rest}{line('10.0.0.1', ours)}")
    read: list[str] = []
    monkeypatch.setattr(HostKeyEntry, "from_line", lambda text: read.append(text) or original(text))  # type: ignore[func-returns-value]
    assert loaded(file, known_hosts.name("10.0.0.1", 22)) == [ours]
    assert len(read) == 1
    assert loaded(file, known_hosts.name("10.0.0.1", 23)) == [others]


def test_a_damaged_line_is_no_reason_to_trust_another_key(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "known"
    good = line("h", key())
    file.write_text(good[: len(good) // 2 // 4 * 4] + "\n")
    with pytest.raises(InvalidHostKey):
        loaded(file, "h")
    assert not loaded(file, "i")


def test_a_first_key_is_written_down_and_another_is_refused(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "folder" / "known"
    first = key()
    known_hosts.pin(str(file), "h", first)
    known_hosts.pin(str(file), "h", first)
    assert file.read_text() == line("h", first)
    with pytest.raises(paramiko.BadHostKeyException):
        known_hosts.pin(str(file), "h", key())
    known_hosts.pin(str(file), "i", key())
    assert loaded(file, "h") == [first]


original = HostKeyEntry.from_line


def test_a_line_that_was_not_finished_counts_as_missing(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "known"
    first, ours = key(), key()
    torn = line("h", ours)
    for length in range(len(torn)):
        file.write_text(line("g", first) + torn[:length])
        assert not loaded(file, "h")
        known_hosts.pin(str(file), "h", ours)
        assert file.read_text() == line("g", first) + torn


def shows(target: SshTarget, key: paramiko.PKey) -> None:
    """The machine shows a key; raises what refuses it."""
    machine = known_hosts.name(target.host, target.port)
    known_hosts.checking(target, known_hosts.known(target)).missing_host_key(None, machine, key)


def test_each_of_the_users_keys_of_one_type_is_accepted(tmp_path: pathlib.Path) -> None:
    keys = [key() for _ in range(3)]
    theirs = [tmp_path / "first", tmp_path / "second"]
    theirs[0].write_text(line("h", keys[0]) + line("h", keys[1]))
    theirs[1].write_text(line("*", keys[2]))
    for number, shown in enumerate(keys):
        pins = tmp_path / f"pins{number}"
        target = SshTarget("h", str(pins), users_known_hosts=tuple(map(str, theirs)), is_strict=True)
        with pytest.raises(paramiko.BadHostKeyException):
            shows(target, key())
        assert not pins.exists()
        shows(target, shown)
        assert pins.read_text() == line("h", shown)


@pytest.mark.parametrize("is_pinned", [False, True])
def test_a_revoked_key_is_refused_also_if_it_is_pinned(tmp_path: pathlib.Path, is_pinned: bool) -> None:
    pins, theirs = tmp_path / "pins", tmp_path / "known"
    ours = key()
    target = SshTarget("h", str(pins), users_known_hosts=(str(theirs),))
    if is_pinned:
        shows(target, ours)
    theirs.write_text(line("i", ours) + f"@revoked {line('h', key())}")
    shows(target, ours)
    theirs.write_text(line("h", ours) + f"@revoked {line('h', ours)}")
    with pytest.raises(ShellAuthFailed, match="revoked"):
        shows(target, ours)


def test_a_machine_is_asked_for_keys_of_known_types_first(tmp_path: pathlib.Path) -> None:
    theirs = tmp_path / "known"
    target = SshTarget("h", str(tmp_path / "pins"), users_known_hosts=(str(theirs),))
    assert known_hosts.known(target).algorithms == frozenset()
    theirs.write_text(line("h", key()) + line("h", paramiko.RSAKey.generate(2048)))
    assert known_hosts.known(target).algorithms == {
        "ecdsa-sha2-nistp256",
        "ssh-rsa",
        "rsa-sha2-256",
        "rsa-sha2-512",
    }
