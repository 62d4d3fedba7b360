"""What is set for one module of a multi-agent setup."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass
class PolicySpec:
    """A module id's settings in `AlgorithmConfig.multi_agent(policies={module_id: PolicySpec(...)})`.

    observation_space: of the module; None: that of the agents that are mapped to it.
    action_space: the same.
    config: settings of the algorithm that differ for this module, as `algorithm_config_overrides_per_module`.
    """

    policy_class: None = None  # of the old API stack; the position in a tuple of four
    observation_space: Any = None
    action_space: Any = None
    config: Any = None

    def __post_init__(self) -> None:
        if self.policy_class is not None:
            raise ValueError(
                f"PolicySpec(policy_class={self.policy_class!r}) belongs to the old API stack. Give the module's class "
                "with config.rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs={...}))."
            )
