"""How a spec names machines."""

from __future__ import annotations

import pytest

from clusterctl.spec.host_names import split_machine


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("h", ("", "h", 0)),
        ("u@h:2222", ("u", "h", 2222)),
        ("fe80::1", ("", "fe80::1", 0)),
        (" u@[fe80::1]:22 ", ("u", "fe80::1", 22)),
    ],
)
def test_how_machines_are_written(text: str, found: tuple[str, str, int]) -> None:
    assert split_machine(text) == found
