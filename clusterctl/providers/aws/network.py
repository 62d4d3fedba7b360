"""The network of a cluster's machines: subnets by zone, and who may talk to whom. What is given is used, what is
missing is made, and what was made is tagged with the cluster's id, by which it is found again."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from autoscaler.provider import Config, MachineTags, NotFound, Throttled, Transient
from clusterctl.providers.ownership import OWNER_NAME_TAG, OWNER_TAG

from .clients import Clients
from .config import AwsProvider
from .listing import instances
from .tagging import cluster_filter, pairs, read, specification

_VPC_BLOCK = "10.83.0.0/16"
_SUBNET_PREFIX = 20
_SSH = 22
_TRIES = 3
_LAG_S = 5.0
"""So long a listing may lack what was made."""
_EVERYBODY = "0.0.0.0/0"
_BELONGING = (MachineTags.CLUSTER_ID, MachineTags.CLUSTER_NAME, OWNER_TAG, OWNER_NAME_TAG)
_SOURCES = {
    "IpRanges": "CidrIp",
    "Ipv6Ranges": "CidrIpv6",
    "UserIdGroupPairs": "GroupId",
    "PrefixListIds": "PrefixListId",
}


@dataclass(frozen=True, slots=True)
class Network:
    """Where machines can be.

    Attributes:
        vpc_id: "" while it has yet to be made.
        subnets: zone -> its subnets, the roomiest first.
        group_id: the machines' security group; "" while it has yet to be made.
        group_is_ours: it was made for the cluster, and goes with it.
    """

    vpc_id: str = ""
    subnets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    group_id: str = ""
    group_is_ours: bool = True


def by_zone(subnets: Iterable[Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """Zone -> subnets, those with the most free addresses first. Pure."""
    out: dict[str, list[str]] = {}
    for subnet in sorted(
        subnets, key=lambda one: (-int(one.get("AvailableIpAddressCount", 0)), one["SubnetId"])
    ):
        out.setdefault(subnet["AvailabilityZone"], []).append(subnet["SubnetId"])
    return {zone: tuple(ids) for zone, ids in out.items()}


def public(
    subnets: Sequence[Mapping[str, Any]], tables: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """The subnets from which there is a way to the internet and back: whose route table leads to a gateway. Pure."""
    main = next((t for t in tables if any(a.get("Main") for a in t.get("Associations", ()))), None)
    own = {a["SubnetId"]: t for t in tables for a in t.get("Associations", ()) if a.get("SubnetId")}

    def leads_out(table: Mapping[str, Any] | None) -> bool:
        return table is not None and any(
            str(route.get("GatewayId", "")).startswith("igw-") for route in table.get("Routes", ())
        )

    return [subnet for subnet in subnets if leads_out(own.get(subnet["SubnetId"], main))]


@dataclass(frozen=True, slots=True)
class Rule:
    """One permission to come in: from one source, as EC2 counts them.

    Attributes:
        first, last: ports; -1 where the protocol has none.
        kind: of the source: IpRanges, Ipv6Ranges, UserIdGroupPairs or PrefixListIds.
    """

    protocol: str
    first: int
    last: int
    kind: str
    source: str

    def permission(self) -> dict[str, Any]:
        """As the API takes it."""
        ports = {} if self.protocol == "-1" else {"FromPort": self.first, "ToPort": self.last}
        return {"IpProtocol": self.protocol, **ports, self.kind: [{_SOURCES[self.kind]: self.source}]}

    @property
    def is_ssh(self) -> bool:
        return (self.protocol, self.first, self.last) == ("tcp", _SSH, _SSH)


def rules(permissions: Iterable[Mapping[str, Any]]) -> set[Rule]:
    """Permissions, as the API gives and takes them, one by one. Pure."""
    return {
        Rule(
            str(one.get("IpProtocol", "")),
            int(one.get("FromPort", -1)),
            int(one.get("ToPort", -1)),
            kind,
            str(source[_SOURCES[kind]]),
        )
        for one in permissions
        for kind in _SOURCES
        for source in one.get(kind) or ()
        if _SOURCES[kind] in source
    }


def ingress(group_id: str, blocks: Sequence[str]) -> set[Rule]:
    """Who may come in: by SSH those of the address blocks, everything from machines of the group itself. Pure.

    Raises:
        Config: one is no address block.
    """
    out = {Rule("-1", -1, -1, "UserIdGroupPairs", group_id)}
    for block in blocks or [_EVERYBODY]:
        try:
            network = ipaddress.ip_network(block)
        except ValueError as error:
            raise Config(f"provider.ssh_cidr_blocks: {error}") from error
        out.add(Rule("tcp", _SSH, _SSH, "IpRanges" if network.version == 4 else "Ipv6Ranges", str(network)))
    return out


def singly(permissions: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The operator's own permissions with one source each: EC2 refuses those together of which it has one. Pure."""
    out = []
    for one in permissions:
        rest = {key: value for key, value in one.items() if key not in _SOURCES}
        out += [{**rest, kind: [source]} for kind in _SOURCES for source in one.get(kind) or ()]
    return out


def find(clients: Clients, spec: AwsProvider, cluster_id: str, subnet_ids: Sequence[str]) -> Network:
    """What there is. Without a network its subnets are none.

    Args:
        subnet_ids: those that node types name.

    Raises:
        Config: what the spec names is not there, or does not fit together.
    """
    vpc_id, subnets = _subnets(clients, spec, cluster_id, subnet_ids)
    group_id, ours = _group(clients, spec, cluster_id, vpc_id) if vpc_id else ("", True)
    return Network(vpc_id, by_zone(subnets), group_id, ours)


def ensure(
    clients: Clients, spec: AwsProvider, cluster_id: str, subnet_ids: Sequence[str], tags: Mapping[str, str]
) -> Network:
    """The network, made as far as it is missing."""
    network = find(clients, spec, cluster_id, subnet_ids)
    if not network.vpc_id or not network.subnets:
        vpc_id, subnets = _make_vpc(clients, cluster_id, tags)
        group_id, ours = _group(clients, spec, cluster_id, vpc_id)
        network = Network(vpc_id, by_zone(subnets), group_id, ours)
    if not network.group_id:
        network = replace(network, group_id=_make_group(clients, spec, cluster_id, network.vpc_id, tags))
    if not network.group_is_ours:
        return network
    _allow(clients, network.group_id, ingress(network.group_id, spec.ssh_cidr_blocks), permissions_of(spec))
    return network


def permissions_of(spec: AwsProvider) -> list[dict[str, Any]]:
    """Who may come in besides, as the spec says. Pure."""
    return singly(spec.security_group.get("IpPermissions") or ())


def group_name(spec: AwsProvider, cluster_id: str) -> str:
    """What the machines' security group is called. Pure."""
    return str(spec.security_group.get("GroupName") or f"clusterctl-{cluster_id}")


def _subnets(
    clients: Clients, spec: AwsProvider, cluster_id: str, subnet_ids: Sequence[str]
) -> tuple[str, list[Mapping[str, Any]]]:
    wanted = [*dict.fromkeys([*spec.subnet_ids, *subnet_ids])]
    if wanted:
        try:
            found = [*clients.pages("describe_subnets", "Subnets", SubnetIds=wanted)]
        except NotFound as error:
            raise Config(f"a subnet that is named is not there: {error}") from error
        networks = {subnet["VpcId"] for subnet in found}
        if len(networks) > 1 or (spec.vpc_id and networks != {spec.vpc_id}):
            raise Config(
                f"the subnets {', '.join(wanted)} must all be of one network, provider.vpc_id if it is given"
            )
        return networks.pop(), found
    if spec.vpc_id:
        subnets = _all_of(clients, spec.vpc_id)
        if not spec.use_internal_ips:
            tables = clients.pages(
                "describe_route_tables", "RouteTables", Filters=[{"Name": "vpc-id", "Values": [spec.vpc_id]}]
            )
            subnets = public(subnets, [*tables])
        if not subnets:
            raise Config(
                f"network {spec.vpc_id} has no subnet with a way to the internet: name subnets (provider.subnet_ids), "
                "or say use_internal_ips: true"
            )
        return spec.vpc_id, subnets
    default = clients.ec2("describe_vpcs", Filters=[{"Name": "is-default", "Values": ["true"]}])["Vpcs"]
    if default:
        vpc_id = default[0]["VpcId"]
        subnets = [subnet for subnet in _all_of(clients, vpc_id) if subnet.get("DefaultForAz")]
        if subnets:
            return vpc_id, subnets
    own = _own_vpcs(clients, cluster_id)
    return (min(own), _all_of(clients, min(own))) if own else ("", [])


def _own_vpcs(clients: Clients, cluster_id: str) -> list[str]:
    """Those that were made for the cluster. Of several it is in the least, whoever asks: see `_made_once`."""
    return [vpc["VpcId"] for vpc in clients.ec2("describe_vpcs", Filters=cluster_filter(cluster_id))["Vpcs"]]


def _all_of(clients: Clients, vpc_id: str) -> list[Mapping[str, Any]]:
    return [*clients.pages("describe_subnets", "Subnets", Filters=[{"Name": "vpc-id", "Values": [vpc_id]}])]


def _group(clients: Clients, spec: AwsProvider, cluster_id: str, vpc_id: str) -> tuple[str, bool]:
    """The group's id and whether it is ours. One of the name that the spec gives is used as it is."""
    named = [
        {"Name": "group-name", "Values": [group_name(spec, cluster_id)]},
        {"Name": "vpc-id", "Values": [vpc_id]},
    ]
    found = clients.ec2("describe_security_groups", Filters=named)["SecurityGroups"]
    if not found:
        return "", True
    return str(found[0]["GroupId"]), read(found[0].get("Tags")).get(MachineTags.CLUSTER_ID) == cluster_id


def _make_group(
    clients: Clients, spec: AwsProvider, cluster_id: str, vpc_id: str, tags: Mapping[str, str]
) -> str:
    try:
        answer = clients.ec2(
            "create_security_group",
            GroupName=group_name(spec, cluster_id),
            Description=f"Machines of clusterctl's cluster {cluster_id}",
            VpcId=vpc_id,
            TagSpecifications=[specification("security-group", tags)],
        )
    except Config as error:
        if "InvalidGroup.Duplicate" not in str(error):  # an attempt whose answer was lost
            raise
        group_id = _group(clients, spec, cluster_id, vpc_id)[0]
        if not group_id:
            raise Transient(f"{error}, and it is not listed yet") from error
        return group_id
    return str(answer["GroupId"])


def _allow(clients: Clients, group_id: str, wanted: set[Rule], further: Sequence[Mapping[str, Any]]) -> None:
    """Lets in who is wanted, and by SSH nobody else any more. Other permissions that somebody has added stay."""
    (group,) = clients.young("ec2", "describe_security_groups", GroupIds=[group_id])["SecurityGroups"]
    there = rules(group.get("IpPermissions", ()))
    for permission in [*(rule.permission() for rule in sorted(wanted - there, key=str)), *further]:
        done = "InvalidPermission.Duplicate"
        given = {"GroupId": group_id, "IpPermissions": [permission]}
        clients.ensure("ec2", "authorize_security_group_ingress", done, **given)
    surplus = there - wanted - rules(further)
    for rule in sorted((rule for rule in surplus if rule.is_ssh), key=str):
        clients.ec2("revoke_security_group_ingress", GroupId=group_id, IpPermissions=[rule.permission()])


def _make_vpc(
    clients: Clients, cluster_id: str, tags: Mapping[str, str]
) -> tuple[str, list[Mapping[str, Any]]]:
    """A network with a public subnet in every zone: its id, and the subnets. What an interrupted earlier attempt has
    made is used."""
    vpc_id = _made_once(
        lambda: _own_vpcs(clients, cluster_id),
        lambda: clients.ec2(
            "create_vpc",
            repeatable=False,
            CidrBlock=_VPC_BLOCK,
            TagSpecifications=[specification("vpc", tags)],
        )["Vpc"]["VpcId"],
    )
    clients.young("ec2", "modify_vpc_attribute", VpcId=vpc_id, EnableDnsHostnames={"Value": True})
    gateway_id = _gateway(clients, vpc_id, cluster_id, tags)
    (table, *_) = clients.young(
        "ec2",
        "describe_route_tables",
        Filters=[{"Name": "vpc-id", "Values": [vpc_id]}, {"Name": "association.main", "Values": ["true"]}],
    )["RouteTables"]
    route = {"DestinationCidrBlock": _EVERYBODY, "GatewayId": gateway_id}
    leading = {
        one.get("GatewayId")
        for one in table.get("Routes", ())
        if one.get("DestinationCidrBlock") == _EVERYBODY
    }
    if not leading:
        clients.ensure(
            "ec2", "create_route", "RouteAlreadyExists", RouteTableId=table["RouteTableId"], **route
        )
    elif gateway_id not in leading:  # a route outlives its gateway, which an interrupted clean-up has removed
        clients.young("ec2", "replace_route", RouteTableId=table["RouteTableId"], **route)
    there = {subnet["AvailabilityZone"] for subnet in _all_of(clients, vpc_id)}
    blocks = [str(block) for block in ipaddress.ip_network(_VPC_BLOCK).subnets(new_prefix=_SUBNET_PREFIX)]
    wanted = dict(zip(zones(clients), blocks, strict=False))
    for zone in sorted(wanted.keys() - there):
        place = {"VpcId": vpc_id, "AvailabilityZone": zone, "CidrBlock": wanted[zone]}
        made = [specification("subnet", tags)]
        clients.ensure("ec2", "create_subnet", "InvalidSubnet.Conflict", **place, TagSpecifications=made)
    return vpc_id, _all_of(clients, vpc_id)


def _gateway(clients: Clients, vpc_id: str, cluster_id: str, tags: Mapping[str, str]) -> str:
    def look() -> list[str]:
        found = clients.ec2("describe_internet_gateways", Filters=cluster_filter(cluster_id))
        leads_to = {
            one["InternetGatewayId"]: [to["VpcId"] for to in one.get("Attachments", ())]
            for one in found["InternetGateways"]
        }
        there = [gateway for gateway, networks in leads_to.items() if vpc_id in networks]
        return there or [gateway for gateway, networks in leads_to.items() if not networks]

    gateway_id = _made_once(
        look,
        lambda: clients.ec2(
            "create_internet_gateway",
            repeatable=False,
            TagSpecifications=[specification("internet-gateway", tags)],
        )["InternetGateway"]["InternetGatewayId"],
    )
    place = {"InternetGatewayId": gateway_id, "VpcId": vpc_id}
    clients.ensure("ec2", "attach_internet_gateway", "Resource.AlreadyAssociated", **place)
    return gateway_id


def _made_once(look: Callable[[], list[str]], make: Callable[[], str]) -> str:
    """The id of what AWS makes anew with every call: when an answer is lost, it is looked for before it is made again.
    Several that are there all the same are all the cluster's, and go with it."""
    for attempt in range(1, _TRIES + 1):
        if found := look():
            return min(found)
        try:
            return make()
        except Transient as error:
            if attempt == _TRIES or isinstance(error, Throttled):
                raise
            time.sleep(_LAG_S)
    raise AssertionError("unreachable")


def zones(clients: Clients) -> list[str]:
    """The zones of the region that the account may use, by name."""
    answer = clients.ec2(
        "describe_availability_zones", Filters=[{"Name": "zone-type", "Values": ["availability-zone"]}]
    )
    return sorted(
        zone["ZoneName"] for zone in answer["AvailabilityZones"] if zone.get("State") == "available"
    )


def remove(clients: Clients, cluster_id: str) -> None:
    """Removes the group, and the network if it was made for the cluster. What is still in use raises `Transient`."""
    for group in clients.ec2("describe_security_groups", Filters=cluster_filter(cluster_id))[
        "SecurityGroups"
    ]:
        if heir := _heir(clients, group["GroupId"], cluster_id):
            clients.ec2("create_tags", Resources=[group["GroupId"]], Tags=pairs(heir))
        else:
            clients.remove("ec2", "delete_security_group", GroupId=group["GroupId"])
    for subnet in clients.pages("describe_subnets", "Subnets", Filters=cluster_filter(cluster_id)):
        clients.remove("ec2", "delete_subnet", SubnetId=subnet["SubnetId"])
    for gateway in clients.ec2("describe_internet_gateways", Filters=cluster_filter(cluster_id))[
        "InternetGateways"
    ]:
        names = {"InternetGatewayId": gateway["InternetGatewayId"]}
        for attachment in gateway.get("Attachments", ()):
            clients.remove(
                "ec2", "detach_internet_gateway", "Gateway.NotAttached", VpcId=attachment["VpcId"], **names
            )
        clients.remove("ec2", "delete_internet_gateway", **names)
    for vpc in clients.ec2("describe_vpcs", Filters=cluster_filter(cluster_id))["Vpcs"]:
        clients.remove("ec2", "delete_vpc", VpcId=vpc["VpcId"])


def _heir(clients: Clients, group_id: str, cluster_id: str) -> dict[str, str]:
    """The tags of another cluster that uses the group, as its spec has the same name for it: the group is its from now
    on. Nothing where there is none."""
    users = clients.pages(
        "describe_instances", "Reservations", Filters=[{"Name": "instance.group-id", "Values": [group_id]}]
    )
    for user in instances(users):
        tags = read(user.get("Tags"))
        if (
            user["State"]["Name"] != "terminated"
            and tags.get(MachineTags.CLUSTER_ID, cluster_id) != cluster_id
        ):
            return {key: tags[key] for key in _BELONGING if key in tags}
    return {}
