"""The local shell: what is its alone. What every shell must keep is in tests/contract."""

from __future__ import annotations

import pathlib

from clusterctl.shell.local import LocalShell


def test_ports_need_no_forwarding(tmp_path: pathlib.Path) -> None:
    with LocalShell(str(tmp_path), {}).forward(1234) as port:
        assert port == 1234
