"""What EC2 refuses of a call and moto lets pass: parameters that it does not know, and those of a launch that exclude
each other, also by way of its launch template. Pure; the rules are those of EC2's API reference."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import botocore.session

Refusal = tuple[str, str]
_OF_INTERFACES = {
    "SecurityGroupIds": "an instance-level security groups",
    "SecurityGroups": "an instance-level security groups",
    "SubnetId": "an instance-level subnet ID",
    "PrivateIpAddress": "an instance-level private address",
    "Ipv6Addresses": "instance-level IPv6 addresses",
    "Ipv6AddressCount": "an instance-level IPv6 address count",
    "EnablePrimaryIpv6": "an instance-level primary IPv6 address",
}
_OF_NEW_ONES = ("AssociatePublicIpAddress", "Description", "Groups", "PrivateIpAddress", "SubnetId")
_KINDS = ("instance", "volume", "network-interface", "spot-instances-request", "elastic-gpu")


def read(action: str, flat: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """A call's parameters under the names that boto3 has for them, and those that EC2 does not know."""
    shape = _model().operation_model(action).input_shape
    given = {key: value for key, value in flat.items() if key not in ("Action", "Version")}
    unknown: list[str] = []
    return (_structure(shape, given, "", unknown) if shape else {}), unknown


def refused(
    action: str, flat: Mapping[str, str], template: Mapping[str, Any] | None = None
) -> Refusal | None:
    """Why EC2 refuses a call; None: it does not.

    Args:
        flat: the parameters as they travel.
        template: what the call's launch template says.
    """
    parameters, unknown = read(action, flat)
    if unknown:
        return "UnknownParameter", f"The parameter {unknown[0]} is not recognized"
    for tags in _tags_of(parameters):
        keys = [tag["Key"] for tag in tags]
        if len(keys) > 50:
            return "TagLimitExceeded", "More than 50 tags specified"
        if len(set(keys)) < len(keys):
            return "InvalidParameterValue", "Duplicate tag key specified"
        if any(key.startswith("aws:") for key in keys):
            return "InvalidParameterValue", "Tag keys starting with 'aws:' are reserved for internal use"
        if any(len(tag["Key"]) > 127 or len(tag.get("Value", "")) > 255 + 1 for tag in tags):
            return "InvalidParameterValue", "Tag key or value exceeds the maximum length"
    return _launch({**(template or {}), **parameters}, parameters) if action == "RunInstances" else None


def _launch(merged: Mapping[str, Any], parameters: Mapping[str, Any]) -> Refusal | None:
    interfaces = merged.get("NetworkInterfaces") or []
    for key, words in _OF_INTERFACES.items():
        if interfaces and key in merged:
            return _together(f"Network interfaces and {words} may not be specified on the same request")
    if "SecurityGroupIds" in parameters and "SecurityGroups" in parameters:
        return _together("The parameters groupName and groupId cannot be used in the same request")
    places = [(one.get("NetworkCardIndex", "0"), one.get("DeviceIndex")) for one in interfaces]
    if len(set(places)) < len(places) or any(index is None for _, index in places):
        return "InvalidParameterValue", "Each network interface requires a unique device index."
    for one in interfaces:
        if "AssociatePublicIpAddress" in one and len(interfaces) > 1:
            return _together(
                "The associatePublicIPAddress parameter cannot be specified when launching with multiple network "
                "interfaces."
            )
        if "NetworkInterfaceId" in one and (wrong := [key for key in _OF_NEW_ONES if key in one]):
            return _together(
                f"A network interface may not specify both a network interface ID and {wrong[0]}"
            )
        if "NetworkInterfaceId" in one and one.get("DeleteOnTermination") == "true":
            return _together("Network interfaces that exist may not be deleted on termination")
        if int(parameters["MaxCount"]) > 1 and {"NetworkInterfaceId", "PrivateIpAddress"} & set(one):
            return _together("An address or a network interface is for one instance only")
    kinds = [one.get("ResourceType") for one in parameters.get("TagSpecifications", ())]
    market = merged.get("InstanceMarketOptions") or {}
    if len(set(kinds)) < len(kinds) or not set(kinds) <= set(_KINDS):
        return "InvalidParameterValue", f"{kinds} are not resource types that a launch tags, each once"
    if "spot-instances-request" in kinds and market.get("MarketType") != "spot":
        return (
            "InvalidParameterValue",
            "'spot-instances-request' is not a valid taggable resource type for this operation",
        )
    if "SpotOptions" in market and market.get("MarketType") != "spot":
        return _together("SpotOptions may be specified with the market type spot only")
    options = market.get("SpotOptions") or {}
    if options.get("SpotInstanceType", "one-time") == "one-time":
        if "ValidUntil" in options or options.get("InstanceInterruptionBehavior", "terminate") != "terminate":
            return _together(
                "A one-time Spot request neither stops nor hibernates its instances, nor does it expire"
            )
    elif options.get("InstanceInterruptionBehavior") not in ("stop", "hibernate"):
        return _together(
            "Persistent Spot requests are supported with the interruption behavior stop or hibernate only"
        )
    if market.get("MarketType") == "capacity-block" and "CapacityReservationTarget" not in (
        merged.get("CapacityReservationSpecification") or {}
    ):
        return "InvalidParameterValue", "A capacity block needs the target of its reservation"
    if len(parameters.get("ClientToken", "")) > 64:
        return "InvalidParameterValue", "The client token has more than 64 characters"
    return None


def _together(words: str) -> Refusal:
    return "InvalidParameterCombination", words


def _tags_of(parameters: Mapping[str, Any]) -> list[list[dict[str, str]]]:
    specifications = parameters.get("TagSpecifications") or []
    return [one.get("Tags") or [] for one in specifications if isinstance(one, dict)]


@cache
def _model() -> Any:
    return botocore.session.get_session().get_service_model("ec2")


def _structure(shape: Any, flat: Mapping[str, str], path: str, unknown: list[str]) -> dict[str, Any]:
    known: dict[str, tuple[str, Any]] = {}
    for name, member in shape.members.items():
        said = member.serialization
        location = said.get("name", name)
        known[said.get("queryName") or location[:1].upper() + location[1:]] = (name, member)
    parts: dict[str, dict[str, str]] = {}
    for key, value in flat.items():
        head, _, rest = key.partition(".")
        parts.setdefault(head, {})[rest] = value
    out: dict[str, Any] = {}
    for head, below in parts.items():
        if head not in known:
            unknown.append(f"{path}{head}")
        else:
            name, member = known[head]
            out[name] = _value(member, below, f"{path}{head}.", unknown)
    return out


def _value(shape: Any, flat: Mapping[str, str], path: str, unknown: list[str]) -> Any:
    if shape.type_name == "structure":
        return _structure(shape, flat, path, unknown)
    if shape.type_name == "list":
        entries: dict[int, dict[str, str]] = {}
        for key, value in flat.items():
            number, _, rest = key.partition(".")
            if not number.isdigit():
                unknown.append(f"{path}{key}")
            else:
                entries.setdefault(int(number), {})[rest] = value
        return [_value(shape.member, entries[number], path, unknown) for number in sorted(entries)]
    if set(flat) != {""}:
        unknown.append(path + next(iter(flat)))
    return flat.get("", "")
