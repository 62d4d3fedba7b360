"""The provider protocol over Amazon EC2. What exists is what EC2 lists; all that is ours carries the cluster's tag."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

from autoscaler.provider import (
    Auth,
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
from clusterctl.artefacts.target import Target
from clusterctl.providers import offers, retries
from clusterctl.providers.cloud import Cloud
from clusterctl.providers.protocol import Seat
from clusterctl.spec.definition import ClusterSpec

from . import checks, identity, images, launches, listing, network, policies, principal, tagging
from .catalog import Catalog
from .clients import Clients, Place
from .config import AwsProvider
from .images import Image
from .network import Network
from .notices import Notices
from .prices import AwsPrices

_PAGE = 1000
_YOUNG_S = 20.0
_POLL_S = 1.0
_STOPPED_S = 300.0
_CLEAN_S = 300.0
_DEFAULT_USER = "ec2-user"


class AwsMachines(Cloud[AwsProvider]):
    """The machines of one cluster. See `autoscaler.provider.Provider` for the contract.

    Args:
        settings: what `Ownership` and `SshAccess` take.
    """

    LISTING_LAG_S = 5.0

    def __init__(
        self, spec: ClusterSpec, cluster_id: str, settings: Mapping[str, str], seat: Seat = Seat.OPERATOR
    ) -> None:
        assert isinstance(spec.provider, AwsProvider)
        super().__init__(spec, spec.provider, cluster_id, settings, seat)
        place = Place(
            self._config.region, "" if self._on_head else self._config.profile, self._config.endpoint_url
        )
        self._clients = Clients(place, self._patience_s)
        self._catalog = Catalog(self._clients)
        self._prices: AwsPrices = AwsPrices(self._clients, self._price_folder)
        self._recent = listing.Recent(self.LISTING_LAG_S)
        self._notices = Notices(self._clients, cluster_id)
        self._lock = threading.Lock()
        self._network: Network | None = None
        self._network_of: frozenset[str] = frozenset()  # the subnets that were named when it was found
        self._is_own_account = False
        self._caller = cache(partial(self._clients.call, "sts", "get_caller_identity"))

    # ------------------------------------------------------------ the protocol

    def check(self, node_types: Sequence[NodeType]) -> list[Problem]:
        return checks.check(self._facts(), node_types)

    def targets(self, node_types: Sequence[NodeType]) -> Mapping[str, Target]:
        found = {kind.name: checks.target(self._facts(), kind) for kind in node_types}
        return {name: target for name, target in found.items() if target is not None}

    def _facts(self) -> checks.Facts:
        return checks.Facts(
            self._cluster, self._config, self._cluster_id, self._clients, self._catalog, self._prices
        )

    def check_offline(self, node_types: Sequence[NodeType]) -> list[Problem]:
        found = [
            checks.mistagged(self._config),
            *(checks.misnamed(self._clients, kind) for kind in node_types),
        ]
        return [problem for problem in found if problem]

    def prepare(self, node_types: Sequence[NodeType]) -> Prepared:
        tags = self._tags()
        node_types = [self._catalog.whole(kind) for kind in node_types]
        subnets = self._named_subnets(node_types)
        found = network.ensure(self._clients, self._config, self._cluster_id, subnets, tags)
        details = {"network": found.vpc_id, "security group": found.group_id}
        if self._makes_key():
            identity.ensure_key(self._clients, self._cluster_id, self._access.operators_key(), tags)
            details["key pair"] = identity.key_name(self._cluster_id)
        spot = any(launches.is_spot(kind) for kind in node_types)
        if self._makes_profile():
            policy = policies.of_head(
                self._clients.partition(),
                self._config.region,
                self._cluster_id,
                identity.roles_of(self._clients, self._workers_profiles(node_types)),
                spot,
                images.own_parameters(node_types),
            )
            identity.ensure_profile(self._clients, self._cluster_id, policy, tags)
            details["role"] = policies.role_name(self._cluster_id)
        if spot and not self._on_head:
            identity.ensure_spot_role(self._clients)
        with self._lock:
            self._network, self._network_of = found, frozenset(subnets)
        return Prepared(details)

    def offers(self, node_type: NodeType) -> list[Offer]:
        whole = self._catalog.whole(node_type)
        kind = self._catalog.instance_type(whole)
        there = dict.fromkeys(self._zones(whole, kind.name), kind.resources)
        markets = launches.markets(whole, self._catalog.template(whole))
        price = partial(self._prices.of, whole, kind.name)
        return offers.offers(whole, markets, there, lambda zone, market: price(market, zone))

    def create(self, request: LaunchRequest) -> LaunchResult:
        image = self._catalog.image(request.node_type)
        result = LaunchResult()
        for subnet_id in self._subnets_of(request):
            is_head = request.tags.get(MachineTags.ROLE) == MachineTags.HEAD
            place = launches.Place(
                image_id=image.id,
                user=self._user(request.node_type, image),
                subnet_id=subnet_id,
                group_ids=(self._known_network().group_id,),
                key_name=self._key_name(),
                public=not self._config.use_internal_ips,
                profile=policies.role_name(self._cluster_id) if is_head and self._makes_profile() else "",
                workers_key=self._workers_key(request.node_type),
                template=self._catalog.template(request.node_type),
            )
            result = self._run(request, launches.parameters(request, place, self._tags()))
            if result.machines or not any(_is_full(error) for error in result.errors):
                break  # else the zone's next subnet may have room
        self._recent.add(result.machines)
        return result

    def list(self) -> list[Machine]:
        machines = self._recent.completed(super().list())
        return self._notices.told(machines) if self._on_head else machines

    def terminate(self, ids: Sequence[str]) -> dict[str, ProviderError | None]:
        """In one call; one by one when EC2 takes offence at one of them."""
        if not ids:
            return {}
        ours = {machine.id for machine in self.list() if machine.state is not MachineState.GONE}
        result: dict[str, ProviderError | None] = {
            id: None if id in ours else NotFound(f"there is no machine {id}") for id in ids
        }
        if mine := [id for id in ids if id in ours]:
            try:
                self._clients.ec2("terminate_instances", InstanceIds=mine)
            except (NotFound, Config):
                result |= {id: self._terminate_one(id) for id in mine}
        return result

    def shell(self, machine: Machine) -> Shell:
        found = self._with_address(machine)
        user = found.tags.get(tagging.USER) or self._cluster.auth.ssh_user or _DEFAULT_USER
        return self._access.shell(found.id, machine.node_type, self._address(found), user)

    # ------------------------------------------------------------ what the launcher asks

    def stop(self, ids: Sequence[str]) -> None:
        if ids:
            self._clients.ec2("stop_instances", InstanceIds=[*ids])

    def start(self, ids: Sequence[str]) -> None:
        """A machine that is still stopping is waited for."""
        if ids:
            start = partial(self._clients.ec2, "start_instances", InstanceIds=[*ids])
            retries.while_raising(Transient, start, _STOPPED_S, _POLL_S)

    # ------------------------------------------------------------ inside

    def _principal(self) -> str:
        return principal.stable(str(self._caller()["Arn"]))

    def _account(self) -> Mapping[str, str]:
        return {"account": str(self._caller()["Account"])}

    def _for_head(self) -> Mapping[str, str]:
        return self._access.settings_for_head(lets_operator_in=self._makes_key())

    def _listed(self, tags: Mapping[str, str]) -> Sequence[Machine]:
        self._check_account()
        found = self._clients.pages(
            "describe_instances", "Reservations", Filters=tagging.filters(tags), MaxResults=_PAGE
        )
        return [listing.machine(instance) for instance in listing.instances(found)]

    def _left_of(self, tags: Mapping[str, str]) -> set[str]:
        filters = tagging.filters(tags)
        left = [
            *self._clients.ec2("describe_security_groups", Filters=filters)["SecurityGroups"],
            *self._clients.ec2("describe_key_pairs", Filters=filters)["KeyPairs"],
        ]
        return {tagging.read(one.get("Tags"))[MachineTags.CLUSTER_ID] for one in left}

    def _removals(self) -> Sequence[Callable[[], None]]:
        keys, profile, around = (
            partial(remove, self._clients, self._cluster_id)
            for remove in (identity.remove_keys, identity.remove_profile, network.remove)
        )

        def remove_network() -> None:
            # The interfaces of machines that have just ended hold on to the group for a while. So do machines that
            # were not listed before; they have to be ended first.
            retries.while_raising(Transient, around, _CLEAN_S, _POLL_S, lambda: not self._has_machines())
            self._forget_network()

        return keys, profile, remove_network

    def _tags(self) -> dict[str, str]:
        """Of all that is made for the cluster."""
        return {
            **self._config.tags,
            MachineTags.CLUSTER_NAME: self._cluster.cluster_name,
            **self._mine(),
        }

    def _named_subnets(self, node_types: Sequence[NodeType]) -> Sequence[str]:
        return [*dict.fromkeys(subnet for kind in node_types for subnet in launches.subnets_of(kind))]

    def _all_named_subnets(self) -> Sequence[str]:
        """Of the types whose launch templates can be read. What is wrong with another's, its own offers say, and it
        stops no other type."""
        kinds = []
        for name in self._cluster.available_node_types:
            with contextlib.suppress(Auth, Config):
                kinds.append(self._of_spec(name))
        return self._named_subnets(kinds)

    def _of_spec(self, name: str) -> NodeType:
        kind = NodeType(name, node_config=self._cluster.available_node_types[name].node_config)
        return self._catalog.whole(kind)

    def _known_network(self) -> Network:
        named = self._all_named_subnets()
        with self._lock:
            if self._network is None or not self._network.group_id or self._network_of != frozenset(named):
                self._network = network.find(self._clients, self._config, self._cluster_id, named)
                self._network_of = frozenset(named)
            return self._network

    def _forget_network(self) -> None:
        with self._lock:
            self._network = None

    def _zones(self, node_type: NodeType, instance_type: str) -> Sequence[str]:
        """Where the type is to be had, in the order of the spec."""
        subnets = self._known_network().subnets
        own = launches.subnets_of(node_type)
        there = [zone for zone, ids in subnets.items() if not own or set(own) & set(ids)]
        if not subnets:  # the network has yet to be made, with a subnet in every zone
            there = network.zones(self._clients)
        offered = self._catalog.zones(instance_type)
        order = node_type.zones or sorted(there)
        return [zone for zone in order if zone in there and zone in offered]

    def _subnets_of(self, request: LaunchRequest) -> Sequence[str]:
        own = set(launches.subnets_of(self._catalog.whole(request.node_type)))
        there = self._known_network().subnets.get(request.offer.zone, ())
        found = [subnet for subnet in there if not own or subnet in own]
        if not found:
            raise Config(
                f"node type {request.node_type.name}: there is no subnet in zone {request.offer.zone!r}"
            )
        return found

    def _user(self, node_type: NodeType, image: Image) -> str:
        """Whom one is on a machine. What the operator says is about an image that the operator names."""
        said = self._cluster.auth.ssh_user
        if not self._catalog.names_image(node_type) and image.user:
            return image.user
        return said or image.user or _DEFAULT_USER

    def _makes_key(self) -> bool:
        return self._config.key_pair is None and any(
            not kind.node_config.get("KeyName") for kind in self._cluster.available_node_types.values()
        )

    def _workers_key(self, node_type: NodeType) -> str:
        """What workers let in beside their key pair: the cluster's key, unless that is the key pair."""
        if self._config.key_pair is not None or node_type.node_config.get("KeyName"):
            return self._access.clusters_key()
        keys = self._access.workers_keys()
        return keys[1] if len(keys) > 1 else ""

    def _key_name(self) -> str:
        return (
            self._config.key_pair.key_name if self._config.key_pair else identity.key_name(self._cluster_id)
        )

    def _makes_profile(self) -> bool:
        return not self._of_spec(self._cluster.head_node_type).node_config.get("IamInstanceProfile")

    def _workers_profiles(self, node_types: Sequence[NodeType]) -> Sequence[Mapping[str, str]]:
        return [
            kind.node_config["IamInstanceProfile"]
            for kind in node_types
            if kind.node_config.get("IamInstanceProfile")
        ]

    def _run(self, request: LaunchRequest, parameters: Mapping[str, Any]) -> LaunchResult:
        """One launch. What AWS refuses is in the result; what leaves open whether anything was made is raised."""
        deadline = time.monotonic() + _YOUNG_S
        while True:
            try:
                answer = self._clients.ec2("run_instances", **parameters)
                break
            except Transient:
                raise
            except NotFound as error:  # a group or a key that was made just now, or one that is gone
                if self._on_head or time.monotonic() > deadline:
                    self._forget_network()
                    return LaunchResult(errors=(error,) * request.count)
                time.sleep(_POLL_S)
            except ProviderError as error:
                if "IdempotentParameterMismatch" in str(error):
                    return self._launched_before(request, error)
                return LaunchResult(errors=(error,) * request.count)
        made = tuple(listing.machine(instance) for instance in answer["Instances"])
        missing = request.count - len(made)
        lacking = Capacity(f"EC2 had {len(made)} of {request.count} machines in {request.offer.zone}")
        return LaunchResult(made, (lacking,) * missing)

    def _launched_before(self, request: LaunchRequest, error: ProviderError) -> LaunchResult:
        """The same token with other settings: an image has a new version since, say. What was made then is the
        answer."""
        made = tuple(
            machine
            for machine in self.list()
            if machine.tags.get(MachineTags.TOKEN) == request.token
            and machine.instance_id in request.instance_ids
        )
        return LaunchResult(made, (error,) * (request.count - len(made)))

    def _check_account(self) -> None:
        """What another account lists says nothing of this cluster.

        Raises:
            Auth: the credentials are of another account.
        """
        wanted = "" if self._on_head else self._settings.get("account", "")
        if not wanted or self._is_own_account:
            return
        if (account := str(self._caller()["Account"])) != wanted:
            raise Auth(
                f"this cluster is of the AWS account {wanted}, and the credentials here are of {account}"
            )
        self._is_own_account = True

    def _terminate_one(self, machine_id: str) -> ProviderError | None:
        try:
            self._clients.ec2("terminate_instances", InstanceIds=[machine_id])
        except (
            NotFound
        ) as error:  # it is listed, or was launched just now: not every part of EC2 knows it yet
            return Transient(str(error), 2.0)
        except ProviderError as error:
            return error
        return None


def _is_full(error: ProviderError) -> bool:
    return "InsufficientFreeAddressesInSubnet" in str(error)


PROVIDER = AwsMachines
