"""The check phase: what would keep a spec from working, found before anything is made or paid for."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from autoscaler.provider import NodeType, Problem
from clusterctl.artefacts.architectures import MACHINES
from clusterctl.artefacts.target import NoRuntime, Target
from clusterctl.providers import registry
from clusterctl.providers.protocol import OperatorProvider
from clusterctl.spec.definition import ClusterSpec
from clusterctl.spec.docker import image_of

from .costs import Costs


def problems(
    spec: ClusterSpec,
    provider: OperatorProvider,
    kinds: Sequence[NodeType],
    obtain: Callable[[Target], object],
    offline: bool = False,
) -> list[Problem]:
    """All of them: files that are missing here, machines that no runtime fits, and what the provider finds.

    Args:
        obtain: makes the runtime for a target that is not here, or raises `NoRuntime`.
        offline: only what shows without a network and without credentials.

    Raises:
        ProviderError: the platform cannot be asked.
    """
    found = [*files(spec), *unused(spec, provider)]
    found += provider.check_offline(kinds) if offline else provider.check(kinds)
    if provider.head_extras is None or not spec.runtime.is_uploaded:
        return found  # nothing is shipped
    known = {} if offline or any(problem.fatal for problem in found) else provider.targets(kinds)
    head = spec.head_node_type
    known = {name: known[name] for name in known if not image_of(spec, name, name == head)}
    found += unlike(spec, kinds, known)
    target = known.get(head)
    if target is not None and not target.is_here and not any(problem.fatal for problem in found):
        try:
            obtain(target)
        except NoRuntime as error:
            found.append(Problem(error.what, error.advice))
    return found


def files(spec: ClusterSpec) -> list[Problem]:
    """Those of the files that it names, of which the machines need not be asked."""
    named = {"auth.ssh_private_key": spec.auth.ssh_private_key}
    named |= {f"file_mounts {target}": source for target, source in spec.file_mounts.items()}
    named |= spec.runtime.files()
    return [
        Problem(f"{key}: there is no {source}", "Correct the path.")
        for key, source in named.items()
        if source and not os.path.exists(os.path.expanduser(source))
    ]


def unused(spec: ClusterSpec, provider: OperatorProvider) -> list[Problem]:
    """What is not done on workers that join by themselves, with what their image has."""
    if not provider.capabilities.machines_join:
        return []
    kinds = spec.available_node_types.values()
    given = {
        "file_mounts": spec.file_mounts,
        "setup_commands": spec.setup_commands,
        "worker_setup_commands": spec.worker_setup_commands
        or any(kind.worker_setup_commands for kind in kinds),
    }
    return [
        Problem(
            f"{key} is not for the workers of this provider: they bring what they need, and join by themselves",
            "Put it into their image.",
            fatal=False,
        )
        for key, value in given.items()
        if value
    ]


def unlike(spec: ClusterSpec, kinds: Sequence[NodeType], known: Mapping[str, Target]) -> list[Problem]:
    """Node types whose machines have another CPU architecture or another Python than the head's: what the head runs on
    is what it ships to them.

    Args:
        known: what the runtimes of nodes are made for, by node type.
    """
    names = registry.entry(spec.provider.type_name).machine_types
    machines = {kind.name: names.named(kind.node_config) if names else "" for kind in kinds}
    head = spec.head_node_type

    def cpu(name: str) -> str:
        if name in known:
            return known[name].machine
        named = machines[name]
        return MACHINES[names.architecture(named)] if names and named else ""

    found = []
    for kind in kinds:
        name = kind.name
        if name == head or not kind.max_workers:
            continue
        if cpu(name) and cpu(head) and cpu(name) != cpu(head):
            found.append(
                Problem(
                    f"node type {name}: its machines{f' ({machines[name]})' * bool(machines[name])} have a CPU of kind "
                    f"{cpu(name)}, the head's {cpu(head)}",
                    "All nodes of a cluster need the same kind of CPU: the head ships them what it runs on.",
                )
            )
        elif name in known and head in known and known[name].python != known[head].python:
            found.append(
                Problem(
                    f"node type {name}: its machines have Python {known[name].version}, the head's "
                    f"{known[head].version}",
                    "All nodes of a cluster need the same minor version: name images that have it, or where the "
                    "machines have it (provider.python).",
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
