"""What a machine finds out before it joins a cluster."""

from __future__ import annotations

import pytest

from clusterctl.errors import Unreachable
from clusterctl.head.worker import own_address


@pytest.mark.parametrize(
    ("control", "own"), [("127.0.0.1:4321", "127.0.0.1"), ("[::1]:4321", "::1"), ("localhost:1", "127.0.0.1")]
)
def test_the_address_by_which_it_reaches_the_head(control: str, own: str) -> None:
    assert own_address(control) == own


@pytest.mark.parametrize("control", ["no-such-host.invalid:4321", "127.0.0.1", "127.0.0.1:http"])
def test_a_head_to_which_there_is_no_way(control: str) -> None:
    with pytest.raises(Unreachable, match="there is no way to the head at"):
        own_address(control)
