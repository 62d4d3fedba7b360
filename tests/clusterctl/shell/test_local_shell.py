"""The local shell: what is its alone. What every shell must keep is in tests/contract."""

from __future__ import annotations

import pathlib

import pytest

from clusterctl.shell.local import LocalShell


@pytest.fixture
def shell(tmp_path: pathlib.Path) -> LocalShell:
    home = tmp_path / "home"
    home.mkdir()
    return LocalShell(str(home), {"PATH": "/usr/bin:/bin", "MARK": "m"})


def test_a_file_that_is_there_already_is_left_alone(shell: LocalShell, tmp_path: pathlib.Path) -> None:
    shared = tmp_path / "shared"
    shared.write_text("s")
    shell.put(str(shared), str(shared))
    shell.put(str(tmp_path), str(tmp_path))
    assert shared.read_text() == "s"


def test_ports_need_no_forwarding(shell: LocalShell) -> None:
    with shell.forward(1234) as port:
        assert port == 1234
