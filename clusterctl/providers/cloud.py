"""What every cloud does the same way: whose machines there are, how they are entered, what the head gets, what is
cleaned up. The provider of a cloud says how its API lists, makes and ends machines.

Beside it: `retries` repeats calls, `offers` chooses markets by price, `prices` keeps what the cloud says that machines
cost, `first_boot` is what a new worker does alone.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from autoscaler.provider import (
    Capabilities,
    Config,
    Machine,
    MachineState,
    MachineTags,
    NotFound,
    ProviderError,
)
from clusterctl.spec.definition import ClusterSpec

from . import ownership, retries
from .access import SshAccess
from .cloud_config import CloudConfig
from .ownership import OWNER_TAG, ForeignCluster, Ownership
from .prices import PriceList
from .protocol import ForHead, Seat

C = TypeVar("C", bound=CloudConfig)
_ADDRESS_S = 180.0
_POLL_S = 1.0


class Cloud(ABC, Generic[C]):
    """The base of a cloud's provider.

    Args:
        config: the spec's keys of the cloud.
        settings: what `Ownership` and `SshAccess` take; `cache`, where prices are kept, by default in `folder`.
    """

    LISTING_LAG_S: ClassVar[float]
    """How long after a change a listing may still show the old picture."""
    MOST_AT_ONCE: ClassVar[int] = 50
    """The most machines that one `create` asks for."""

    _prices: PriceList

    def __init__(
        self, spec: ClusterSpec, config: C, cluster_id: str, settings: Mapping[str, str], seat: Seat
    ) -> None:
        self._cluster = spec
        self._config = config
        self._cluster_id = cluster_id
        self._settings = dict(settings)
        self._on_head = seat is Seat.HEAD
        self._patience_s = 0.0 if self._on_head else retries.OPERATORS_PATIENCE_S
        self._price_folder = Path(settings.get("cache") or settings["folder"]).expanduser()
        self._ownership = Ownership(settings, self._principal)
        self._access = SshAccess(spec, settings, seat, cluster_id, config.python)

    # ------------------------------------------------------------ what a cloud says of itself

    @abstractmethod
    def _principal(self) -> str:
        """Whose the credentials are; "": that cannot be told."""

    @abstractmethod
    def _account(self) -> Mapping[str, str]:
        """Where in the cloud the machines are, as settings."""

    @abstractmethod
    def _listed(self, tags: Mapping[str, str]) -> Sequence[Machine]:
        """The machines that carry all these tags."""

    @abstractmethod
    def _removals(self) -> Sequence[Callable[[], None]]:
        """Each removes something that was made around the machines. Repeating it does nothing."""

    def _left_of(self, tags: Mapping[str, str]) -> set[str]:
        """Ids of clusters with these tags of which something other than machines is left."""
        return set()

    def _has_machines(self) -> bool:
        """Whether machines need what is around them."""
        return any(machine.state is not MachineState.GONE for machine in self.list())

    def _for_head(self) -> Mapping[str, str]:
        """Settings of the head's provider, besides the owner's."""
        return {**self._account(), **self._access.settings_for_head()}

    # ------------------------------------------------------------ for the providers

    def _mine(self) -> dict[str, str]:
        """The tags by which a machine is known to be this cluster's."""
        return {MachineTags.CLUSTER_ID: self._cluster_id, **self._ownership.owner.tags()}

    def _of_name(self, cluster_name: str) -> dict[str, str]:
        """The tags by which the owner's clusters of a name are known."""
        return {OWNER_TAG: self._ownership.owner.id, MachineTags.CLUSTER_NAME: cluster_name}

    def _address(self, machine: Machine) -> str:
        """Where a machine is reached from here; "": nowhere yet."""
        is_inside = self._on_head or self._config.use_internal_ips
        return machine.address if is_inside else machine.public_address

    def _with_address(self, machine: Machine) -> Machine:
        """The machine, as soon as it has an address: a public one comes only when it runs.

        Raises:
            NotFound: it does not run.
            Config: it gets no address.
        """
        if machine.tags and self._address(machine):
            return machine
        deadline = time.monotonic() + _ADDRESS_S
        while True:
            found = next((one for one in self.list() if one.id == machine.id), None)
            if found is None or found.state is MachineState.GONE:
                raise NotFound(f"there is no machine {machine.id}")
            if found.state not in (MachineState.PENDING, MachineState.RUNNING):
                raise NotFound(f"machine {machine.id} does not run: it is {found.state.value}")
            if self._address(found):
                return found
            if time.monotonic() > deadline:
                raise Config(
                    f"machine {machine.id} has no public address: its subnet gives none; say use_internal_ips: true if "
                    "you are in its network"
                )
            time.sleep(_POLL_S)

    # ------------------------------------------------------------ what the autoscaler and the launcher ask

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            stop_start=True,
            spot=True,
            prices=True,
            price_source=self._prices.source(),
            forward_ports=True,
            listing_lag_s=self.LISTING_LAG_S,
            max_per_create=self.MOST_AT_ONCE,
            shutdown_ends=True,
        )

    def list(self) -> list[Machine]:
        mine = {MachineTags.CLUSTER_ID: self._cluster_id, OWNER_TAG: self._ownership.owner.id}
        return [*self._listed(mine)]

    def clusters(self, name: str) -> Sequence[str]:
        tags = self._of_name(name)
        there = [machine for machine in self._listed(tags) if machine.state is not MachineState.GONE]
        return sorted({machine.tags[MachineTags.CLUSTER_ID] for machine in there} | self._left_of(tags))

    def foreign(self, name: str) -> Sequence[ForeignCluster]:
        return ownership.foreign(self._listed({MachineTags.CLUSTER_NAME: name}), self._ownership.owner)

    def cleanup(self) -> None:
        if self._on_head or self._has_machines():
            return
        errors: list[ProviderError] = []
        for remove in self._removals():
            try:
                remove()
            except ProviderError as error:  # keeps nothing else from being removed
                errors.append(error)
        if errors:
            raise errors[0]
        self._access.forget()

    def settings(self) -> Mapping[str, str]:
        return {**self._settings, **self._ownership.owner.settings(), **self._account()}

    def for_head(self) -> ForHead:
        settings = {**self._ownership.owner.settings(), **self._for_head()}
        prices = [(file.name, str(file)) for file in self._prices.files() if file.exists()]
        return ForHead(settings, (*self._access.files_for_head(), *prices))

    def default_resources(self) -> dict[str, float]:
        return {}  # each machine says itself what it has

    @property
    def head_extras(self) -> Sequence[str] | None:
        return (self._config.type_name, "ssh")
