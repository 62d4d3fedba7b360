"""Names for ids and for the configuration."""

from __future__ import annotations

from typing import Any

ModuleID = str
AgentID = Any
EpisodeID = str

DEFAULT_MODULE_ID: ModuleID = "default_policy"
ALL_MODULES = "__all_modules__"

# A `runtime.rllib.algorithms.algorithm_config.AlgorithmConfig`. It builds runners, connectors and learners, so it
# imports their modules and they cannot import its.
Config = Any
