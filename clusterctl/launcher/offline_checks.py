"""What would keep a spec from working, as far as it shows without a network and without credentials."""

from __future__ import annotations

import os
from collections.abc import Sequence

from autoscaler.provider import NodeType, Problem
from clusterctl.providers import OperatorProvider
from clusterctl.spec.definition import ClusterSpec, RayRuntime


def problems(spec: ClusterSpec, provider: OperatorProvider, kinds: Sequence[NodeType]) -> list[Problem]:
    """All of them.

    Raises:
        ProviderError: the platform's SDK is not installed.
    """
    files = {"auth.ssh_private_key": spec.auth.ssh_private_key}
    files |= {f"file_mounts {target}": source for target, source in spec.file_mounts.items()}
    if isinstance(spec.runtime, RayRuntime):
        files["runtime.wheelhouse"] = spec.runtime.wheelhouse
    missing = [
        Problem(f"{key}: there is no {source}", "Correct the path.")
        for key, source in files.items()
        if source and not os.path.exists(os.path.expanduser(source))
    ]
    return [*missing, *provider.check_offline(kinds)]
