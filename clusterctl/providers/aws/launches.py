"""What EC2 is asked for a machine: the parameters of RunInstances, from a node type's `node_config` and what surrounds
the cluster. Pure."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autoscaler.provider import ON_DEMAND, SPOT, Config, LaunchRequest, MachineTags, NodeType
from clusterctl.providers import first_boot

from . import tagging

INSTANCE_TYPE = "m5.large"
"""Of machines of a type that names none: one that every region has."""
_OWN = ("SubnetIds", "MinCount", "MaxCount", "ClientToken", "DryRun", "ImageId", "InstanceMarketOptions")
"""Keys of `node_config` that are not passed on as they are."""
_NOTHING = "#!/bin/sh\n"
"""A script for a head whose template was made of a worker: with the template's own it would shut itself down."""
_MOST_USER_DATA = 16384
"""EC2's limit, in bytes."""
_TAGGED = ("instance", "volume", "network-interface")
_CHECKED = {"MinCount": 1, "MaxCount": 1}
_OF_AN_INTERFACE = {
    "Ipv6AddressCount": "Ipv6AddressCount",
    "Ipv6Addresses": "Ipv6Addresses",
    "PrivateIpAddress": "PrivateIpAddress",
    "EnablePrimaryIpv6": "PrimaryIpv6",
}
"""Settings of the machine that EC2 refuses beside network interfaces, and what an interface calls them."""
_LISTED_MARKETS = (None, SPOT, "on-demand")
"""Of EC2's markets those whose prices are known. What is reserved is paid for in advance or not at all."""


@dataclass(frozen=True, slots=True)
class Place:
    """What a machine is made of and where.

    Attributes:
        workers_key: the key that workers let in beside that of `key_name`, as a line for `authorized_keys`.
        template: what the node type's launch template says. EC2 merges it with the request, so the two have to fit.
    """

    image_id: str
    user: str
    subnet_id: str
    group_ids: tuple[str, ...]
    key_name: str
    public: bool
    profile: str = ""
    workers_key: str = ""
    template: Mapping[str, Any] = field(default_factory=dict)


def subnets_of(node_type: NodeType) -> list[str]:
    """The subnets that a node type names. Here and below: a type with what its launch template says."""
    config = node_type.node_config
    single = [str(config["SubnetId"])] if config.get("SubnetId") else []
    listed = [str(one) for one in config.get("SubnetIds") or ()]
    interfaces = [
        str(one["SubnetId"]) for one in config.get("NetworkInterfaces") or () if one.get("SubnetId")
    ]
    return [*dict.fromkeys([*single, *listed, *interfaces])]


def is_spot(node_type: NodeType) -> bool:
    """Whether a node type may be on the spot market."""
    given = _market_type(node_type)
    return given == SPOT or (node_type.spot and given is None)


def markets(node_type: NodeType, template: Mapping[str, Any]) -> list[str]:
    """Those on which a node type may be, the first one first. `spot: true` is both; EC2's own InstanceMarketOptions is
    what it says, and what the launch template says of it cannot be taken back."""
    is_free = node_type.spot and "InstanceMarketOptions" not in template
    elsewhere = [ON_DEMAND] if _market_type(node_type) != SPOT or is_free else []
    return [*([SPOT] if is_spot(node_type) else []), *elsewhere]


def has_list_price(node_type: NodeType) -> bool:
    """Whether what is not on the spot market costs what an on-demand machine does."""
    return _market_type(node_type) in _LISTED_MARKETS


def contradiction(node_type: NodeType) -> str:
    """What of a type's settings cannot be honoured, in words; "": nothing."""
    given = _market_type(node_type)
    if node_type.spot and given not in (None, SPOT):
        return f"spot: true, and InstanceMarketOptions.MarketType is {given}: leave one of the two out"
    if node_type.node_config.get("DisableApiTermination"):
        return "DisableApiTermination: with it nobody could end the machine, and it would cost for ever"
    return ""


def settings(node_type: NodeType) -> dict[str, Any]:
    """What RunInstances gets of a `node_config`, for a check of its names and kinds."""
    passed = {key: value for key, value in node_type.node_config.items() if key not in _OWN}
    if options := node_type.node_config.get("InstanceMarketOptions"):
        passed["InstanceMarketOptions"] = options
    return {**_CHECKED, **passed}


def client_token(request: LaunchRequest) -> str:
    """Makes the launch safe to repeat: the same for the same request and offer, another for any other."""
    words = (request.token, request.offer.zone, request.offer.market, *request.instance_ids)
    return hashlib.sha256("/".join(words).encode()).hexdigest()


def parameters(request: LaunchRequest, place: Place, owner_tags: Mapping[str, str]) -> dict[str, Any]:
    """All of RunInstances for a request.

    Args:
        owner_tags: tags of all that belongs to the cluster.

    Raises:
        Config: the node type's settings contradict each other.
    """
    kind, config = request.node_type, request.node_type.node_config
    is_head = request.tags.get(MachineTags.ROLE) == MachineTags.HEAD
    is_spot = request.offer.market == SPOT
    out = {key: value for key, value in config.items() if key not in _OWN}
    out |= {
        "MinCount": 1,
        "MaxCount": request.count,
        "ClientToken": client_token(request),
        "ImageId": place.image_id,
        "TagSpecifications": _tags(request, place, owner_tags, config),
        "MetadataOptions": {
            "HttpEndpoint": "enabled",
            "HttpPutResponseHopLimit": 2,  # containers are one hop further
            **config.get("MetadataOptions", {}),
            "HttpTokens": "required",
        },
        # A worker that shuts itself down, as it does without a head, must not go on to cost. Spot machines do not stop.
        "InstanceInitiatedShutdownBehavior": config.get(
            "InstanceInitiatedShutdownBehavior", "stop" if is_head and not is_spot else "terminate"
        ),
    }
    if "InstanceType" not in place.template:
        out.setdefault("InstanceType", INSTANCE_TYPE)
    if not is_head:
        own = str(config.get("UserData") or "")
        given = own or _decoded(str(place.template.get("UserData", "")))
        data = first_boot.with_user_data(given, first_boot.script(place.user, place.workers_key))
        out["UserData"] = data
        if len(data.encode()) > _MOST_USER_DATA:
            raise Config(
                f"node_config.UserData is too long: with our script it may have {_MOST_USER_DATA} bytes at most. Use "
                "setup_commands, or let it fetch what it needs"
            )
    elif first_boot.is_ours(_decoded(str(place.template.get("UserData", "")))):
        out.setdefault("UserData", _NOTHING)
    if disks := config.get("BlockDeviceMappings"):
        out["BlockDeviceMappings"] = [_with_its_machine(disk) for disk in disks]
    out.setdefault("KeyName", place.key_name)
    if place.profile:
        out.setdefault("IamInstanceProfile", {"Name": place.profile})
    if is_spot:
        out["InstanceMarketOptions"] = _market({**place.template, **config}, kind.max_price)
    elif (
        (market := config.get("InstanceMarketOptions")) and market.get("MarketType") != SPOT and not kind.spot
    ):
        out["InstanceMarketOptions"] = market
    return _with_network(out, place)


def _decoded(user_data: str) -> str:
    """A template's user data as text."""
    try:
        return base64.b64decode(user_data, validate=True).decode(errors="replace")
    except ValueError:
        return user_data


def _tags(
    request: LaunchRequest, place: Place, owner_tags: Mapping[str, str], config: Mapping[str, Any]
) -> list[dict[str, Any]]:
    own = {
        "Name": f"{owner_tags.get(MachineTags.CLUSTER_NAME, 'clusterctl')} {request.node_type.name}",
        **owner_tags,
        **{key: value for key, value in request.tags_of(0).items() if key != MachineTags.INSTANCE_ID},
        **tagging.names(request.instance_ids),
        tagging.USER: place.user,
    }
    given = {
        one["ResourceType"]: tagging.read(one.get("Tags")) for one in config.get("TagSpecifications") or ()
    }
    kinds = [*_TAGGED, *(["spot-instances-request"] if request.offer.market == SPOT else [])]
    out = []
    for kind in dict.fromkeys([*kinds, *given]):
        mine = own if kind == "instance" else owner_tags if kind in kinds else {}
        out.append(tagging.specification(kind, {**given.get(kind, {}), **mine}))
    return out


def _market(config: Mapping[str, Any], max_price: float | None) -> dict[str, Any]:
    given = config.get("InstanceMarketOptions") or {}
    options = dict(given.get("SpotOptions") or {})
    if options.setdefault("SpotInstanceType", "one-time") != "one-time":
        raise Config(
            "node_config.InstanceMarketOptions.SpotOptions.SpotInstanceType: only one-time requests are ended with "
            "their machines; others would launch new ones after `clusterctl down`"
        )
    if max_price is not None:
        options.setdefault("MaxPrice", f"{max_price:g}")
    return {"MarketType": SPOT, "SpotOptions": options}


def _with_its_machine(disk: Mapping[str, Any]) -> dict[str, Any]:
    """The disk, which ends with its machine unless it says otherwise."""
    if not disk.get("Ebs"):
        return dict(disk)
    return {**disk, "Ebs": {"DeleteOnTermination": True, **disk["Ebs"]}}


def _with_network(out: dict[str, Any], place: Place) -> dict[str, Any]:
    """The subnet and the groups belong to the interfaces, as soon as one of these is spelled out; and it must be, to
    say whether there is a public address. EC2 refuses a mixture, also with what the launch template says: groups of a
    template that are not an interface's exclude interfaces, and the subnet decides on public addresses."""
    if out.get("SecurityGroups"):
        raise Config("node_config.SecurityGroups: name groups by their ids, in SecurityGroupIds")
    interfaces: Sequence[Mapping[str, Any]] = (
        out.get("NetworkInterfaces") or place.template.get("NetworkInterfaces") or ()
    )
    if place.template.get("SecurityGroupIds") or place.template.get("SecurityGroups"):
        if interfaces:
            raise Config(
                "the launch template has security groups and there are NetworkInterfaces, which EC2 refuses together: "
                "name the groups as Groups of the interfaces, and take them out of the template"
            )
        return {**out, "SubnetId": place.subnet_id}
    groups = [str(one) for one in out.pop("SecurityGroupIds", None) or place.group_ids]
    out.pop("SubnetId", None)
    first = {name: out.pop(key) for key, name in _OF_AN_INTERFACE.items() if key in out}
    given = interfaces or [{}]
    used: dict[int, int] = {}  # network card -> the highest index of a device on it
    out["NetworkInterfaces"] = []
    for number, interface in enumerate(given):
        one: dict[str, Any] = {**(first if number == 0 else {}), **interface}
        card = int(one.get("NetworkCardIndex", 0))
        one.setdefault("DeviceIndex", used.get(card, -1 if card == 0 else 0) + 1)
        used[card] = max(used.get(card, 0), int(one["DeviceIndex"]))
        if "NetworkInterfaceId" not in one:
            one.setdefault("DeleteOnTermination", True)
            one.setdefault("SubnetId", place.subnet_id)
            one.setdefault("Groups", groups)
            if len(given) == 1:  # EC2 gives public addresses to machines with one interface only
                one.setdefault("AssociatePublicIpAddress", place.public)
        out["NetworkInterfaces"].append(one)
    return out


def _market_type(node_type: NodeType) -> str | None:
    return (node_type.node_config.get("InstanceMarketOptions") or {}).get("MarketType")
