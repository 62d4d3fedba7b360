"""The check phase: what would keep a spec from working, found before anything is made or paid for."""

from __future__ import annotations

import os
from collections.abc import Sequence

from autoscaler.provider import NodeType, Problem
from clusterctl.providers import OperatorProvider
from clusterctl.spec.definition import ClusterSpec, RayRuntime

from .costs import Costs


def problems(
    spec: ClusterSpec, provider: OperatorProvider, kinds: Sequence[NodeType], offline: bool = False
) -> list[Problem]:
    """All of them: files that are missing here, and what the provider finds.

    Args:
        offline: only what shows without a network and without credentials.

    Raises:
        ProviderError: the platform cannot be asked.
    """
    return [*files(spec), *(provider.check_offline(kinds) if offline else provider.check(kinds))]


def files(spec: ClusterSpec) -> list[Problem]:
    """Those of the files that it names, of which the machines need not be asked."""
    named = {"auth.ssh_private_key": spec.auth.ssh_private_key}
    named |= {f"file_mounts {target}": source for target, source in spec.file_mounts.items()}
    if isinstance(spec.runtime, RayRuntime):
        named["runtime.wheelhouse"] = spec.runtime.wheelhouse
    return [
        Problem(f"{key}: there is no {source}", "Correct the path.")
        for key, source in named.items()
        if source and not os.path.exists(os.path.expanduser(source))
    ]


def unoffered(costs: Costs) -> list[Problem]:
    """Node types that nobody offers: fatal where such a machine is needed from the start."""
    return [
        Problem(
            f"the provider offers no machine for node type '{row.node_type}'",
            "Look at its zones, max_price and node_config.",
            fatal=row.node_type in costs.missing,
        )
        for row in costs.rows
        if not row.is_offered
    ]
