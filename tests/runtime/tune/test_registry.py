"""Names of environments."""

from __future__ import annotations

import pytest

from runtime import tune
from runtime.tune.registry import env_creator_of


def test_an_environment_is_created_by_its_name() -> None:
    tune.register_env("maze", lambda config: ("maze", config["size"]))
    assert env_creator_of("maze")({"size": 3}) == ("maze", 3)
    tune.register_env("maze", lambda config: "another")
    assert env_creator_of("maze")({}) == "another"
    with pytest.raises(ValueError, match="registered as 'labyrinth'"):
        env_creator_of("labyrinth")
    with pytest.raises(TypeError, match="env_creator must be"):
        tune.register_env("wall", 3)  # type: ignore[arg-type]
