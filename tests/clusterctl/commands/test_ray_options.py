from __future__ import annotations

import pytest

from clusterctl.commands.ray_options import without

OURS = {"--cluster", "-c", "--json"}
VALUED = {"--cluster", "-c"}


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        (["-v", "x.yaml"], ["x.yaml"]),
        (["x.yaml", "--verbose", "--json"], ["x.yaml", "--json"]),
        (["--log-style", "pretty", "x.yaml"], ["x.yaml"]),
        (["--log-color=false", "x.yaml"], ["x.yaml"]),
        (["-c", "-v", "x"], ["-c", "-v", "x"]),  # the value of an option is no option
        (["x", "--", "-v"], ["x", "--", "-v"]),
        (["--log-style"], []),
    ],
)
def test_rays_options_are_left_out(arguments: list[str], kept: list[str]) -> None:
    assert without(arguments, OURS, VALUED, to_end=True) == kept


def test_what_follows_a_command_is_its_own() -> None:
    assert without(["-v", "ls", "-v"], OURS, VALUED, to_end=False) == ["ls", "-v"]


def test_an_option_of_the_same_name_stays() -> None:
    assert without(["-v", "--verbose", "x"], {*OURS, "-v"}, VALUED, to_end=True) == ["-v", "x"]
