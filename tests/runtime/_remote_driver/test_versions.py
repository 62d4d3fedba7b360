"""Which versions of both sides work together."""

from __future__ import annotations

import pytest

from runtime._remote_driver.versions import mismatch

OWN = (1, "3.11.7", "0.1.0")


@pytest.mark.parametrize(
    ("theirs", "says"),
    [
        ((1, "3.11.7", "0.1.0"), ""),
        ((1, "3.11.2", "0.1.0"), ""),
        ((1, "3.11.7", ""), ""),
        ((1, "3.12.1", "0.1.0"), "Python minor versions differ"),
        ((2, "3.11.7", ""), "clusterctl versions differ"),
        ((1, "3.11.7", "0.2.0"), "clusterctl versions differ"),
    ],
)
def test_versions(theirs: tuple[int, str, str], says: str) -> None:
    found = mismatch(*theirs, OWN)
    assert bool(found) == bool(says)
    assert says in found
    if says:
        assert theirs[1] in found or theirs[2] in found


def test_a_version_that_this_side_does_not_know_is_no_obstacle() -> None:
    assert mismatch(1, "3.11.7", "0.1.0", (1, "3.11.7", "")) == ""
