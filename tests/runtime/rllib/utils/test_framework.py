"""What is not installed is named, with what to do."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import pytest

from runtime.rllib.algorithms.ppo import PPOConfig
from runtime.rllib.utils.framework import require


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes packages look as if they were not installed."""
    find = importlib.util.find_spec

    def hide(*packages: str) -> None:
        def found(name: str, package: str | None = None) -> Any:
            return None if name in packages else find(name, package)

        monkeypatch.setattr(importlib.util, "find_spec", found)

    return hide


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        (["torch"], "needs torch, which is not installed here: pip install torch .of torch the variant"),
        (["gymnasium"], r"needs gymnasium, which is not installed here: pip install 'clusterctl\[rllib\]'$"),
        (
            ["torch", "numpy", "gymnasium"],
            r"gymnasium, numpy and torch, .* 'clusterctl\[rllib\]' torch \(",
        ),
    ],
)
def test_missing_packages_are_named_with_what_to_install(
    without: Callable[..., None], missing: list[str], words: str
) -> None:
    without(*missing)
    with pytest.raises(ImportError, match=words):
        require(missing[0])


def test_an_algorithm_is_not_built_without_torch(without: Callable[..., None]) -> None:
    without("torch")
    with pytest.raises(ImportError, match="RLlib needs torch"):
        PPOConfig().environment("CartPole-v1").build_algo()


def test_packages_that_are_there_are_not_missed() -> None:
    require("numpy")
