"""Whose key opens which machine."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from autoscaler.provider import Config
from clusterctl.providers.access import SshAccess
from clusterctl.providers.protocol import Seat
from clusterctl.spec.definition import ClusterSpec
from clusterctl.spec.load import load_text


def new_key(path: Path) -> str:
    """Makes a key; returns its public half."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "me", "-f", path], check=True)
    return Path(f"{path}.pub").read_text().strip()


def spec_with(key: str = "") -> ClusterSpec:
    auth = f"auth: {{ssh_private_key: {key}}}\n" if key else ""
    text = "cluster_name: c\nprovider: {type: aws, region: us-east-1}\nhead_node_type: head\n"
    return load_text(text + auth + "available_node_types: {head: {}}\n", "c.yaml")


def on_head(access: SshAccess, spec: ClusterSpec, folder: Path) -> SshAccess:
    """What the head makes of what it is given."""
    folder.mkdir()
    for name, file in access.files_for_head():
        (folder / name).write_bytes(Path(file).read_bytes())
        (folder / name).chmod(0o600)
    return SshAccess(spec, {**access.settings_for_head(), "folder": str(folder)}, Seat.HEAD, "c-1", "python3")


def test_the_operators_key_never_leaves_the_operators_machine(tmp_path: Path) -> None:
    public = new_key(tmp_path / "own")
    spec = spec_with(str(tmp_path / "own"))
    access = SshAccess(spec, {"folder": str(tmp_path / "here")}, Seat.OPERATOR, "c-1", "python3")
    assert access.key_file() == str(tmp_path / "own")
    assert access.operators_key() == public
    private = (tmp_path / "own").read_bytes()
    assert all(Path(file).read_bytes() != private for _, file in access.files_for_head())
    assert all(str(tmp_path / "own") not in value for value in access.settings_for_head().values())

    head = on_head(access, spec, tmp_path / "head")
    assert head.key_file() == str(tmp_path / "head" / "ssh_key")
    assert head.operators_key() == public
    (first, second), (again, other) = access.workers_keys(), head.workers_keys()
    assert first == again == public
    assert second.split()[:2] == other.split()[:2] != public.split()[:2]


def test_without_an_own_key_there_is_one_for_all(tmp_path: Path) -> None:
    access = SshAccess(spec_with(), {"folder": str(tmp_path / "here")}, Seat.OPERATOR, "c-1", "python3")
    head = on_head(access, spec_with(), tmp_path / "head")
    assert access.workers_keys() == head.workers_keys() == [access.operators_key()]
    assert Path(access.key_file()).read_bytes() == Path(head.key_file()).read_bytes()


def test_a_key_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    spec = spec_with(str(tmp_path / "none"))
    with pytest.raises(Config, match="cannot be read"):
        SshAccess(spec, {"folder": str(tmp_path)}, Seat.OPERATOR, "c-1", "python3").operators_key()
