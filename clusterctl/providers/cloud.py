"""What the providers of clouds have in common: whose machines there are, how they are entered, what the head gets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence

from autoscaler.provider import Machine, MachineTags
from clusterctl.spec.definition import ClusterSpec

from . import ownership
from .access import SshAccess
from .ownership import ForeignCluster, Ownership
from .protocol import ForHead, Seat


class Cloud(ABC):
    """The base of a cloud's provider.

    Args:
        settings: what `Ownership` and `SshAccess` take.
        principal: asks whose the credentials are; "": that cannot be told.
        python: of the machines.
    """

    def __init__(
        self,
        spec: ClusterSpec,
        cluster_id: str,
        settings: Mapping[str, str],
        seat: Seat,
        principal: Callable[[], str],
        python: str,
    ) -> None:
        self._cluster = spec
        self._cluster_id = cluster_id
        self._settings = dict(settings)
        self._on_head = seat is Seat.HEAD
        self._ownership = Ownership(settings, principal)
        self._access = SshAccess(spec, settings, seat, cluster_id, python)

    @abstractmethod
    def _named(self, cluster_name: str) -> Iterable[Machine]:
        """The machines of all clusters of a name, whoever owns them."""

    @abstractmethod
    def _account(self) -> Mapping[str, str]:
        """Where in the cloud the machines are, as settings."""

    def _for_head(self) -> Mapping[str, str]:
        """Settings of the head's provider, besides the owner's."""
        return {**self._account(), **self._access.settings_for_head()}

    def _tags_of_machines(self) -> dict[str, str]:
        """The tags by which a machine is known to be this cluster's."""
        return {MachineTags.CLUSTER_ID: self._cluster_id, **self._ownership.owner.tags()}

    # ------------------------------------------------------------ what the launcher asks

    def foreign(self, name: str) -> Sequence[ForeignCluster]:
        return ownership.foreign(self._named(name), self._ownership.owner)

    def settings(self) -> Mapping[str, str]:
        return {**self._settings, **self._ownership.owner.settings(), **self._account()}

    def for_head(self) -> ForHead:
        settings = {**self._ownership.owner.settings(), **self._for_head()}
        return ForHead(settings, self._access.files_for_head())

    def default_resources(self) -> dict[str, float]:
        return {}  # each machine says itself what it has
