"""The check phase: what would keep a spec from working, found before anything is made or paid for."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence

from autoscaler.provider import NodeType, Problem
from clusterctl.providers import OperatorProvider
from clusterctl.spec.definition import ClusterSpec, RayRuntime

from . import architectures
from .costs import Costs


def problems(
    spec: ClusterSpec, provider: OperatorProvider, kinds: Sequence[NodeType], offline: bool = False
) -> list[Problem]:
    """All of them: files that are missing here, machines that cannot run what is shipped, and what the provider finds.

    Args:
        offline: only what shows without a network and without credentials.

    Raises:
        ProviderError: the platform cannot be asked.
    """
    shipped = machines(spec, kinds) if provider.head_extras is not None else []
    return [*files(spec), *shipped, *(provider.check_offline(kinds) if offline else provider.check(kinds))]


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


def machines(
    spec: ClusterSpec, kinds: Sequence[NodeType], machine: str = platform.machine()
) -> list[Problem]:
    """Node types whose machines have another CPU architecture than this one, where the runtime comes from: it has
    extension modules.

    Args:
        machine: the kernel's name of the architecture here.
    """
    if isinstance(spec.runtime, RayRuntime):
        return []  # each machine installs its own
    where = str(spec.provider.__struct_config__.tag)
    here = architectures.of_kernel(machine)
    found = []
    for kind in kinds:
        name = architectures.machine_type(where, kind.node_config)
        is_used = kind.max_workers or kind.name == spec.head_node_type
        if name and is_used and (there := architectures.architecture(where, name)) != here:
            found.append(
                Problem(
                    f"node type {kind.name}: {name} is {there}, here is {here}: the runtime is shipped from here and "
                    "would not start there",
                    f"Name a machine type that is {here}, or run clusterctl on a machine that is {there}.",
                )
            )
    return found


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
