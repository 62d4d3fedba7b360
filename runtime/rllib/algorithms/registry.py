"""The names of algorithms."""

from __future__ import annotations

import difflib
import importlib
from typing import Any

ALGORITHMS = {
    "APPO": "appo",
    "BC": "bc",
    "CQL": "cql",
    "DQN": "dqn",
    "DreamerV3": "dreamerv3",
    "IMPALA": "impala",
    "IQL": "iql",
    "MARWIL": "marwil",
    "PPO": "ppo",
    "SAC": "sac",
    "TQC": "tqc",
}
"""Name of a class -> its package in `runtime.rllib.algorithms`, which also has `<name>Config`."""


def get_algorithm_class(name: str) -> Any:
    """The class of an algorithm.

    Raises:
        ValueError: there is no algorithm of this name.
    """
    if name not in ALGORITHMS:
        near = difflib.get_close_matches(name.upper(), {each.upper(): each for each in ALGORITHMS}, n=1)
        found = next((each for each in ALGORITHMS if near and each.upper() == near[0]), None)
        hint = f" Did you mean {found!r}?" if found else f" There are {', '.join(ALGORITHMS)}."
        raise ValueError(f"There is no algorithm {name!r}.{hint}")
    return getattr(importlib.import_module(f"runtime.rllib.algorithms.{ALGORITHMS[name]}"), name)


def get_algorithm_config(name: str) -> Any:
    """A new object of an algorithm's default settings.

    Raises:
        ValueError: there is no algorithm of this name.
    """
    return get_algorithm_class(name).get_default_config()
