"""The provider protocol over Google Compute Engine. What exists is what the API lists with the cluster's labels."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache, partial
from typing import TypeVar

from autoscaler.provider import (
    ON_DEMAND,
    SPOT,
    Capacity,
    Config,
    LaunchRequest,
    LaunchResult,
    Machine,
    MachineState,
    MachineTags,
    NodeType,
    NotFound,
    Offer,
    Prepared,
    Problem,
    ProviderError,
    Shell,
    Transient,
)
from clusterctl.artefacts.architectures import MACHINES
from clusterctl.artefacts.target import Target
from clusterctl.providers import offers
from clusterctl.providers.cloud import Cloud
from clusterctl.providers.ownership import OWNER_TAG
from clusterctl.providers.protocol import Seat
from clusterctl.spec.definition import ClusterSpec

from . import api as apis
from . import checks, errors, firewall, instances, machine_types, names
from .api import ComputeApi, Json
from .config import GcpProvider
from .instances import Surroundings
from .machine_names import MACHINE_TYPES
from .machine_types import Hardware
from .metadata import NOTICES
from .network import ClusterNetwork
from .prices import GcpPrices

T = TypeVar("T")
R = TypeVar("R")
_CREATE_S = 60.0
"""So long `create` waits for the platform's word on an instance; that is when its hardware is found, not its boot."""
_CHANGE_S = 300.0
_SIDE_BY_SIDE = 16
_USER = "clusterctl"


class GcpMachines(Cloud[GcpProvider]):
    """The machines of one cluster. See `autoscaler.provider.Provider`.

    An instance's name follows from what it was asked for, and so does the id of the request: asking again makes nothing
    twice. `create` waits for the operation, since that is what tells of a stock-out or a quota.

    Args:
        settings: what `Ownership` and `SshAccess` take; `project`, once it is known.
    """

    LISTING_LAG_S = 2.0

    def __init__(
        self, spec: ClusterSpec, cluster_id: str, settings: Mapping[str, str], seat: Seat = Seat.OPERATOR
    ) -> None:
        assert isinstance(spec.provider, GcpProvider)
        super().__init__(spec, spec.provider, cluster_id, settings, seat)
        self._user = spec.auth.ssh_user or _USER
        self._network = ClusterNetwork(self._config, self._tag, lambda: self._api)
        place = (self._config.endpoint, self._config.region)
        self._prices: GcpPrices = GcpPrices(place, lambda: self._api.skus(), self._price_folder)
        # What the platform has does not change while a process lives.
        self._zones = cache(self._ask_zones)
        self._machine_types = cache(lambda name: self._api.machine_types(name))
        self._accelerators = cache(lambda name: self._api.accelerator_types(name))
        self._properties = cache(lambda link: self._api.properties(link))

    # ------------------------------------------------------------ the protocol

    def check(self, node_types: Sequence[NodeType]) -> list[Problem]:
        if wrong := self.check_offline(node_types):
            return wrong
        try:
            region, project = self._api.region(self._config.region), self._api.project_info()
        except NotFound as error:
            return [Problem(str(error), "Correct provider.region or provider.project_id.")]
        found = [*self._check_network(node_types)]
        least: dict[str, float] = {}
        most: dict[str, float] = {}
        answers = self._each(node_types, lambda kind: self._check_type(kind, project))
        for kind, answer in zip(node_types, answers, strict=True):
            problems, hardware = answer
            found += problems
            if hardware is None:
                continue
            heads = int(kind.name == self._cluster.head_node_type)
            for count, total in ((kind.min_workers, least), (kind.max_workers, most)):
                for metric, amount in checks.needs(hardware, count + heads, kind.spot).items():
                    total[metric] = total.get(metric, 0.0) + amount
        found += checks.quotas(region, least, most, self._config.region)
        return found + checks.quotas(project, least, most, f"project {self._api.project}")

    def targets(self, node_types: Sequence[NodeType]) -> Mapping[str, Target]:
        found: dict[str, Target] = {}
        for kind in node_types:
            where = MACHINES[MACHINE_TYPES.architecture(instances.machine_type(kind.node_config))]
            python = instances.python_of(instances.boot_image(kind.node_config))
            if python is not None and self._config.python == "python3":
                found[kind.name] = Target(python, where)
        return found

    def check_offline(self, node_types: Sequence[NodeType]) -> list[Problem]:
        around = Surroundings("", "", "any", self._config.use_internal_ips, self._user, (), "default")
        found: list[Problem] = []
        for kind in node_types:
            where = f"node type {kind.name}: node_config"
            try:
                apis.check_body(
                    instances.passed_on(kind.node_config), where
                )  # first, so that it can be worked with
                market = SPOT if kind.spot else ""
                body = instances.body(kind.node_config, "x", "x", market, {}, around, False)
                apis.check_body(body, where)
            except Config as error:
                found.append(Problem(str(error), "Correct node_config of the type."))
        return found

    def prepare(self, node_types: Sequence[NodeType]) -> Prepared:
        """Makes the cluster's key and its firewall rules."""
        self._access.workers_keys()
        rules = self._network.make_rules([self._whole(kind) for kind in node_types])
        details = {"project": self._api.project, "network tag": self._tag(), "firewall": ", ".join(rules)}
        return Prepared({key: value for key, value in details.items() if value})

    def offers(self, node_type: NodeType) -> list[Offer]:
        whole = self._whole(node_type)
        found = self._hardware(whole)
        there = {zone: found[zone].resources() for zone in self._zones_of(whole) if zone in found}
        return offers.offers(
            whole, _markets(whole), there, lambda zone, market: self._price(whole, found[zone], market)
        )

    def create(self, request: LaunchRequest) -> LaunchResult:
        has_gpus = any(found.gpus for found in self._hardware(request.node_type).values())
        around = self._surroundings(self._access.workers_keys())
        answers = self._each(
            range(request.count), lambda index: self._create(request, index, around, has_gpus)
        )
        unknown = next((a for a in answers if isinstance(a, _Unknown)), None)
        if unknown is not None:
            raise unknown.error  # whoever asks again is told of those that were made
        return LaunchResult(
            tuple(a for a in answers if isinstance(a, Machine)),
            tuple(a for a in answers if isinstance(a, ProviderError)),
        )

    def list(self) -> list[Machine]:
        """On the head, spot machines that stop are listed as given up: Google takes them back."""
        machines = super().list()
        if not self._on_head:
            return machines
        return [
            replace(one, unwanted=NOTICES.means)
            if one.market == SPOT and one.state is MachineState.STOPPING
            else one
            for one in machines
        ]

    def terminate(self, ids: Sequence[str]) -> dict[str, ProviderError | None]:
        return dict(zip(ids, self._each(ids, partial(self._change, "delete", wait=False)), strict=True))

    def shell(self, machine: Machine) -> Shell:
        return self._access.shell(
            machine.id, machine.node_type, self._address(self._with_address(machine)), self._user
        )

    # ------------------------------------------------------------ what the launcher asks

    def stop(self, ids: Sequence[str]) -> None:
        self._change_all("stop", ids)

    def start(self, ids: Sequence[str]) -> None:
        self._change_all("start", ids)

    # ------------------------------------------------------------ checks

    def _check_type(self, node_type: NodeType, project: Json) -> tuple[Sequence[Problem], Hardware | None]:
        where = f"node type {node_type.name}"
        try:
            node_type = self._whole(node_type)
        except (NotFound, Config) as error:
            named = next(iter(instances.query(node_type.node_config)))
            return [Problem(f"{where}: {error}", f"Correct {named} of node_config.")], None
        config = node_type.node_config
        problems: list[Problem] = []
        if node_type.name == self._cluster.head_node_type:
            problems += checks.service_account(project, self._config.service_account, config)
        wanted = self._zones_of(node_type)
        listed = self._machine_types(instances.machine_type(config))
        there = machine_types.hardware(listed, config)
        zone = next((zone for zone in wanted if zone in there), "")
        if wrong := checks.zones(node_type, there, wanted, self._config.region):
            problems += wrong
        elif found := there.get(zone):
            price = partial(self._price, node_type, found)
            problems += offers.too_dear(node_type, found.machine_type, _markets(node_type), price)
        for accelerator in instances.accelerators(config):
            problems += checks.accelerator(
                node_type, accelerator, self._accelerator_zones(accelerator), wanted
            )
        image = instances.boot_image(config)
        if image:
            try:
                self._api.image(image)
            except (NotFound, Config) as error:
                problems.append(Problem(f"{where}: {error}", "Correct sourceImage of node_config."))
        return problems, there.get(zone)

    def _check_network(self, node_types: Sequence[NodeType]) -> Sequence[Problem]:
        try:
            for network in self._network.of(node_types):
                self._api.network(network.rpartition("/")[2])
        except NotFound as error:
            return [Problem(str(error), "Name another one as provider.network or provider.subnetwork.")]
        return []

    # ------------------------------------------------------------ making machines

    def _create(
        self, request: LaunchRequest, index: int, around: Surroundings, has_gpus: bool
    ) -> Machine | ProviderError | _Unknown:
        zone, market = request.offer.zone, request.offer.market
        tags = {**request.tags_of(index), **self._mine()}
        name = self._name(request, index)
        config = request.node_type.node_config
        doing = f"{request.node_type.name} ({name}) in {zone}"
        made = False
        try:
            template = self._template(request.node_type)
            body = instances.body(config, name, zone, market, tags, around, has_gpus, template)
            request_id = names.request_id(self._api.project, zone, name)
            try:
                operation = self._api.insert(zone, body, instances.query(config), request_id)
                made = True
                operation = self._api.wait(operation, time.monotonic() + _CREATE_S)
                if (error := errors.of_operation(doing, operation)) is not None:
                    return error
            except errors.AlreadyThere:
                pass  # by an earlier call with the same token
            machine = instances.machine(self._api.instance(zone, name))
        except NotFound as error:
            if made:
                return Capacity(f"{doing}: it was taken back at once")
            return Config(str(error))  # what the body names: an image, a network
        except Transient as error:
            return _Unknown(error)
        except ProviderError as error:
            return error
        if not self._is_ours(machine):
            return Config(f"{doing}: an instance of that name is somebody else's")
        if machine.state is MachineState.STOPPING:
            return _Unknown(Transient(f"{doing}: an earlier one of that name is ending", 5.0))
        return machine

    def _name(self, request: LaunchRequest, index: int) -> str:
        """Valid, nobody else's, and the same whenever this is asked for."""
        unique = names.digest(
            self._owner_id,
            self._cluster_id,
            request.token,
            request.instance_ids[index],
            request.offer.zone,
            request.offer.market,
        )
        role = request.tags.get(MachineTags.ROLE, MachineTags.WORKER)
        return f"{names.slug(self._cluster.cluster_name, 40)}-{names.slug(role, 8)}-{unique}"

    def _surroundings(self, public_keys: Sequence[str]) -> Surroundings:
        network, subnetwork = self._network.links()
        return Surroundings(
            network=network,
            subnetwork=subnetwork,
            network_tag=self._tag(),
            use_internal_ips=self._config.use_internal_ips,
            user=self._user,
            public_keys=tuple(public_keys),
            service_account=self._config.service_account,
        )

    # ------------------------------------------------------------ ending, stopping, starting

    def _change(self, verb: str, machine_id: str, wait: bool = True) -> ProviderError | None:
        """Deletes, stops or starts a machine, and waits until that is done."""
        zone, name = names.place(machine_id)
        if not zone:
            return NotFound(f"there is no machine {machine_id}")
        try:
            if not self._is_ours(instances.machine(self._api.instance(zone, name))):
                return NotFound(f"machine {machine_id} is none of this cluster's")
            operation = self._api.change(verb, zone, name, names.request_id(verb, str(time.time_ns())))
            if wait:
                operation = self._api.wait(operation, time.monotonic() + _CHANGE_S)
        except ProviderError as error:
            return error
        if wait and operation.get("status") != "DONE":
            return Transient(f"after {_CHANGE_S:g} s the platform still has to {verb} {name}")
        return errors.of_operation(f"{verb} {name}", operation)

    def _change_all(self, verb: str, ids: Sequence[str]) -> None:
        for error in self._each(ids, partial(self._change, verb)):
            if error is not None:
                raise error

    # ------------------------------------------------------------ inside

    def _principal(self) -> str:
        return self._api.principal()

    def _removals(self) -> Sequence[Callable[[], None]]:
        return (self._network.remove_rules,)

    def _has_machines(self) -> bool:
        """Of any life of the cluster of this name: they have the firewall rules in common."""
        return bool(self._listed(self._of_name(self._cluster.cluster_name)))

    def _account(self) -> Mapping[str, str]:
        return {"project": self._api.project}

    @property
    def _owner_id(self) -> str:
        return self._ownership.owner.id

    def _tag(self) -> str:
        """By which firewall rules know the cluster's machines."""
        return firewall.network_tag(self._owner_id, self._cluster.cluster_name)

    @property
    def _api(self) -> ComputeApi:
        return apis.of(
            self._settings.get("project") or self._config.project_id, self._config.endpoint, self._patience_s
        )

    def _is_ours(self, machine: Machine) -> bool:
        mine = {MachineTags.CLUSTER_ID: self._cluster_id, OWNER_TAG: self._owner_id}
        return all(machine.tags.get(key) == value for key, value in mine.items())

    def _listed(self, tags: Mapping[str, str]) -> Sequence[Machine]:
        found, silent = self._api.instances(names.filter_of(tags))
        blind = sorted(zone for zone in silent if machine_types.region_of(zone) == self._config.region)
        if blind:
            raise Transient(f"listing machines: {', '.join(blind)} cannot be asked")
        return [instances.machine(instance) for instance in found]

    def _price(self, node_type: NodeType, hardware: Hardware, market: str) -> float | None:
        is_spot = instances.is_spot(node_type.node_config)
        return self._prices.of(hardware.parts(), SPOT if is_spot else market)

    def _zones_of(self, node_type: NodeType) -> Sequence[str]:
        return node_type.zones or self._zones()

    def _ask_zones(self) -> Sequence[str]:
        return sorted(
            str(zone["name"])
            for zone in self._api.zones()
            if str(zone.get("region", "")).rpartition("/")[2] == self._config.region
            and zone.get("status", "UP") == "UP"
        )

    def _hardware(self, node_type: NodeType) -> dict[str, Hardware]:
        node_type = self._whole(node_type)
        kind = instances.machine_type(node_type.node_config)
        found = machine_types.hardware(self._machine_types(kind), node_type.node_config)
        for accelerator in instances.accelerators(node_type.node_config):
            having = self._accelerator_zones(accelerator)
            found = {zone: hardware for zone, hardware in found.items() if zone in having}
        return found

    def _whole(self, node_type: NodeType) -> NodeType:
        """The type with what its template says."""
        return replace(node_type, node_config={**self._template(node_type), **node_type.node_config})

    def _template(self, node_type: NodeType) -> Json:
        """What the template or the machine image of a type says."""
        source = next(iter(instances.query(node_type.node_config).values()), "")
        return self._properties(source) if source else {}

    def _accelerator_zones(self, kind: str) -> set[str]:
        return {str(entry["zone"]).rpartition("/")[2] for entry in self._accelerators(kind)}

    def _address(self, machine: Machine) -> str:
        """The inner one where node_config gives its machines no other."""
        return super()._address(machine) or machine.address

    def _each(self, things: Sequence[T], ask: Callable[[T], R]) -> Sequence[R]:
        """Asks side by side."""
        if len(things) < 2:
            return [ask(thing) for thing in things]
        with ThreadPoolExecutor(min(_SIDE_BY_SIDE, len(things)), thread_name_prefix="gcp") as pool:
            return [*pool.map(ask, things)]


def _markets(node_type: NodeType) -> Sequence[str]:
    return (SPOT, ON_DEMAND) if node_type.spot else (ON_DEMAND,)


class _Unknown:
    """Nobody can say whether the machine was made."""

    def __init__(self, error: Transient) -> None:
        self.error = error


PROVIDER = GcpMachines
