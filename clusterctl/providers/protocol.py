"""What the launcher and the head ask of a provider, and what they know of each type."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from autoscaler.provider import NodeType, Problem, Provider
from clusterctl.artefacts.architectures import MachineTypes
from clusterctl.artefacts.target import Target
from clusterctl.spec.definition import ClusterSpec
from clusterctl.spec.provider_type import ProviderType
from clusterctl.startup.notices import Source

from .ownership import ForeignCluster


class Seat(Enum):
    """Where a provider runs, which decides by which addresses, keys and credentials it works."""

    OPERATOR = "operator"
    HEAD = "head"


@dataclass(frozen=True, slots=True)
class ForHead:
    """Settings of the head's provider, and private files that it needs: (name in its node's folder, file
    here)."""

    settings: Mapping[str, str]
    files: Sequence[tuple[str, str]] = ()


class OperatorProvider(Provider, Protocol):
    """What the launcher asks beyond the autoscaler's needs."""

    def check_offline(self, node_types: Sequence[NodeType]) -> list[Problem]:
        """The part of `check` that needs neither a network nor credentials."""
        ...

    def stop(self, ids: Sequence[str]) -> None:
        """Ends what runs on the machines and keeps the machines."""
        ...

    def start(self, ids: Sequence[str]) -> None:
        """Starts stopped machines."""
        ...

    def clusters(self, name: str) -> Sequence[str]:
        """Ids of the clusters of that name and our owner that have machines, from tags alone."""
        ...

    def foreign(self, name: str) -> Sequence[ForeignCluster]:
        """The clusters of that name that belong to other owners, from tags alone."""
        ...

    def settings(self) -> Mapping[str, str]:
        """What another process needs besides the spec to make this provider again (resolved defaults)."""
        ...

    def default_resources(self) -> dict[str, float]:
        """What a machine brings when its node type names nothing."""
        ...

    def for_head(self) -> ForHead:
        """What the head needs to make this provider again."""
        ...

    def targets(self, node_types: Sequence[NodeType]) -> Mapping[str, Target]:
        """What the runtimes of nodes of these types are made for, by type, as far as that is known before there are
        any. Follows a `check`."""
        ...

    @property
    def head_extras(self) -> Sequence[str] | None:
        """Which of our extras the head needs besides the runtime; None: nodes get nothing from us, they find it all,
        with this very interpreter."""
        ...


MEMBERS = frozenset(
    name for protocol in (Provider, OperatorProvider) for name in vars(protocol) if not name.startswith("_")
)
"""What a provider must have."""

Make = Callable[[ClusterSpec, str, Mapping[str, str], Seat], OperatorProvider]
"""Makes the provider of a spec, for the cluster of an id; the other arguments: see `registry.make`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry(ProviderType):
    """A type of provider: everything that is known of it outside its package.

    Attributes:
        make: makes a provider; None: PROVIDER of the package's module `provider` does. Either is asked for late, as the
            platform's SDK is imported then.
        extra: the extra of our distribution that it needs; "": none.
        modules: what this extra brings.
        for_head: what the head needs to make a provider again.
        notices: where its spot machines read that they are taken back.
        machine_types: how machine types are named, where they tell the CPU's architecture.
        ships: whether a file of the extra, by its path in site-packages, is of use to a head.
    """

    make: Make | None = None
    extra: str = ""
    modules: tuple[str, ...] = ()
    for_head: Callable[[ClusterSpec, OperatorProvider], ForHead] = lambda spec, provider: provider.for_head()
    notices: Source | None = None
    machine_types: MachineTypes | None = None
    ships: Callable[[str], bool] = lambda path: True
