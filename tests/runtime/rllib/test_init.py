"""Importing the library is light, and its names come on first use."""

from __future__ import annotations

import subprocess
import sys

import pytest

from runtime import rllib
from runtime.rllib import algorithms


def modules_after(code: str) -> set[str]:
    program = f"{code}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    return set(done.stdout.split())


def test_configs_need_neither_torch_nor_gymnasium() -> None:
    loaded = modules_after(
        "import runtime.rllib; from runtime.rllib.algorithms.ppo import PPOConfig; PPOConfig()"
    )
    assert "runtime.rllib.algorithms.ppo.ppo" in loaded
    assert not loaded & {"torch", "gymnasium", "pandas", "pyarrow"}


def test_names_are_listed_and_found() -> None:
    assert "MultiAgentEnv" in dir(rllib)
    assert rllib.Columns.OBS == "obs"
    with pytest.raises(AttributeError, match="NoSuchThing"):
        _ = rllib.NoSuchThing


def test_algorithms_are_found_by_name() -> None:
    from runtime.rllib.algorithms.ppo.ppo import PPOConfig

    assert algorithms.PPOConfig is PPOConfig
    assert {"PPO", "DQN", "SAC", "Algorithm"} <= set(dir(algorithms))
    with pytest.raises(AttributeError, match="PPOO"):
        _ = algorithms.PPOO
