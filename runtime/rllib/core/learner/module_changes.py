"""What an added or removed module changes in a config."""

from __future__ import annotations

from typing import Any

from ..._core.types import Config, ModuleID
from ...policy.policy import PolicySpec
from ..rl_module.multi_rl_module import MultiRLModuleSpec


def record_modules(
    config: Config,
    spec: MultiRLModuleSpec,
    to_train: Any,
    *,
    added: ModuleID | None = None,
    removed: ModuleID | None = None,
    overrides: dict[str, Any] | None = None,
) -> None:
    """Writes into a config that a module was added or removed, so that copies and checkpoints of it agree.

    Args:
        config: the config to change.
        spec: of all modules from now on.
        to_train: the new `policies_to_train`; None: unchanged.
        added: id of a new module.
        removed: id of a module that is gone.
        overrides: settings that are different for the new module.
    """
    if added is not None:
        config.policies.setdefault(added, PolicySpec())
        if overrides is not None:
            config.rl_module(algorithm_config_overrides_per_module={added: overrides})
    if removed is not None:
        config.policies.pop(removed, None)
        config.algorithm_config_overrides_per_module.pop(removed, None)
    if to_train is not None:
        config.multi_agent(policies_to_train=to_train)
    config.rl_module(rl_module_spec=spec)
