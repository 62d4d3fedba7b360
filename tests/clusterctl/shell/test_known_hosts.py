"""What a file of host keys says of one machine."""

from __future__ import annotations

import pathlib

import paramiko
import pytest
from paramiko.hostkeys import HostKeyEntry, InvalidHostKey

from clusterctl.shell import known_hosts


def key() -> paramiko.PKey:
    return paramiko.ECDSAKey.generate()


def line(machine: str, key: paramiko.PKey) -> str:
    return f"{machine} {key.get_name()} {key.get_base64()}\n"


def loaded(file: pathlib.Path, machine: str) -> paramiko.HostKeys:
    keys = paramiko.HostKeys()
    known_hosts.load(keys, str(file), machine)
    return keys


def test_a_machine_has_its_own_lines(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "known"
    assert not loaded(file, "10.0.0.1")
    ours, others = key(), key()
    rest = "".join(line(f"10.0.0.1{number}", others) for number in range(20))
    file.write_text(f"# keys\n\n{line('[10.0.0.1]:23', others)}{rest}{line('10.0.0.1', ours)}")
    read: list[str] = []
    monkeypatch.setattr(HostKeyEntry, "from_line", lambda text: read.append(text) or original(text))  # type: ignore[func-returns-value]
    assert loaded(file, known_hosts.name("10.0.0.1", 22)).check("10.0.0.1", ours)
    assert len(read) == 1
    assert loaded(file, known_hosts.name("10.0.0.1", 23)).check("[10.0.0.1]:23", others)


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
    policy = known_hosts.pinning(str(file))
    policy.missing_host_key(None, "h", first)
    policy.missing_host_key(None, "h", first)
    assert file.read_text() == line("h", first)
    with pytest.raises(paramiko.BadHostKeyException):
        policy.missing_host_key(None, "h", key())
    policy.missing_host_key(None, "i", key())
    assert loaded(file, "h").check("h", first)


original = HostKeyEntry.from_line


def test_a_line_that_was_not_finished_counts_as_missing(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "known"
    first, ours = key(), key()
    torn = line("h", ours)
    for length in range(len(torn)):
        file.write_text(line("g", first) + torn[:length])
        assert not loaded(file, "h")
        known_hosts.pinning(str(file)).missing_host_key(None, "h", ours)
        assert file.read_text() == line("g", first) + torn
