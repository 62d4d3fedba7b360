"""What would keep machines of AWS from coming up, found before anything is made. Only asks.

EC2 says of most calls whether they would be allowed, without making them (`DryRun`). Quotas and roles are asked for
where we may; where we may not, that is no problem of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from autoscaler.provider import (
    ON_DEMAND,
    SPOT,
    Auth,
    Config,
    LaunchRequest,
    MachineTags,
    NodeType,
    NotFound,
    Offer,
    Problem,
    ProviderError,
    Transient,
)
from clusterctl.artefacts.architectures import MACHINES
from clusterctl.artefacts.target import LEAST_PYTHON, Target, text
from clusterctl.providers import offers
from clusterctl.spec.definition import ClusterSpec

from . import identity, launches, network, tagging
from .catalog import Catalog
from .clients import Clients
from .config import AwsProvider
from .images import Image
from .network import Network
from .prices import AwsPrices
from .types import InstanceType

_CORRECT = "Correct node_config of the type."
_NOWHERE = "subnet-00000000"
_ROOTS = {"/dev/sda1", "/dev/xvda"}
"""What images call their first disk."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a check is about."""

    spec: ClusterSpec
    config: AwsProvider
    cluster_id: str
    clients: Clients
    catalog: Catalog
    prices: AwsPrices


class _Type(NamedTuple):
    """A node type as it is given, and with what its launch template says."""

    given: NodeType
    whole: NodeType


def check(facts: Facts, node_types: Sequence[NodeType]) -> list[Problem]:
    """All problems; without usable credentials only that one.

    Raises:
        Transient: AWS does not answer.
    """
    try:
        facts.clients.call("sts", "get_caller_identity")
    except (Auth, Config) as error:
        return [Problem(str(error), "`aws sts get-caller-identity` shows as whom you are known.")]
    out = [*_keys(facts, node_types)]
    if odd := mistagged(facts.config):
        out.append(odd)
    types: list[_Type] = []
    for given in node_types:
        try:
            types.append(_Type(given, facts.catalog.whole(given)))
        except (Auth, Config) as error:
            out.append(Problem(str(error), _CORRECT))
    found, problem = _network(facts, [kind.whole for kind in types])
    out += [problem] if problem else []
    usable: list[tuple[_Type, InstanceType, Image]] = []
    for kind in types:
        problems = [*_settings(facts, kind)]
        if not problems:
            described = _described(facts, kind.whole, found)
            if isinstance(described, Problem):
                problems = [described]
            else:
                usable.append((kind, *described))
                problems = [*_fitting(facts, kind.whole, *described)]
        out += problems
    if not problem:
        out += _permissions(facts, usable, found)
    out += _quotas(facts, [(kind.whole, instance_type) for kind, instance_type, _ in usable])
    return out


def _keys(facts: Facts, node_types: Sequence[NodeType]) -> Iterator[Problem]:
    """Whether there are both halves of each key pair."""
    auth, given = facts.spec.auth, facts.config.key_pair
    names = {str(kind.node_config["KeyName"]) for kind in node_types if kind.node_config.get("KeyName")}
    names |= {given.key_name} if given else set()
    private = os.path.expanduser(auth.ssh_private_key)
    if private and not os.path.exists(private):
        yield Problem(f"auth.ssh_private_key: there is no file {private}", "Name the file of the key.")
    if names and not private:
        yield Problem(
            f"the machines get key pair {', '.join(sorted(names))}, and auth.ssh_private_key is missing",
            "Name the file of its private half, or leave the key pair out: then one is made.",
        )
    for name in sorted(names):
        try:
            facts.clients.ec2("describe_key_pairs", KeyNames=[name])
        except (NotFound, Config) as error:
            yield Problem(
                f"EC2 has no key pair {name}: {error}", f"It must be of region {facts.config.region}."
            )


def _network(facts: Facts, node_types: Sequence[NodeType]) -> tuple[Network, Problem | None]:
    named = [*dict.fromkeys(subnet for kind in node_types for subnet in launches.subnets_of(kind))]
    try:
        found = network.find(facts.clients, facts.config, facts.cluster_id, named)
        network.ingress("", facts.config.ssh_cidr_blocks)
        further = {"IpPermissions": network.permissions_of(facts.config)}
        if words := facts.clients.problem_of("AuthorizeSecurityGroupIngress", further):
            raise Config(f"provider.security_group: {words}")
    except (Auth, Config) as error:
        return Network(), Problem(str(error), "Correct the provider's network settings.")
    return found, None


def mistagged(config: AwsProvider) -> Problem | None:
    """What of the operator's tags AWS would refuse, without asking anybody."""
    words = tagging.wrong(config.tags)
    return (
        Problem(f"provider.tags: {words}", "Correct it: everything that is made carries them.")
        if words
        else None
    )


def misnamed(clients: Clients, node_type: NodeType) -> Problem | None:
    """What of a type's settings EC2 does not know by name or kind, without asking anybody."""
    words = clients.problem_of("RunInstances", launches.settings(node_type))
    words = words or launches.contradiction(node_type)
    return Problem(f"node type {node_type.name}: node_config: {words}", _CORRECT) if words else None


def _settings(facts: Facts, kind: _Type) -> Iterator[Problem]:
    """Whether EC2 knows the names and kinds of a type's settings."""
    if problem := misnamed(facts.clients, kind.given):
        yield problem
    elif words := launches.contradiction(kind.whole):
        yield Problem(f"node type {kind.given.name}: with its launch template: {words}", _CORRECT)
    if named := kind.whole.node_config.get("IamInstanceProfile"):
        try:
            identity.roles_of(facts.clients, [named])
        except Config as error:
            yield Problem(f"node type {kind.given.name}: {error}", _CORRECT)
        except Auth:
            pass  # we may not look; the launch would say so


def _described(facts: Facts, node_type: NodeType, found: Network) -> tuple[InstanceType, Image] | Problem:
    """The instance type and the image of a type that can be launched somewhere."""
    try:
        kind = facts.catalog.instance_type(node_type)
        offered = facts.catalog.zones(kind.name)
        image = facts.catalog.image(node_type)
    except (Auth, Config) as error:
        return Problem(str(error), _CORRECT)
    own = set(launches.subnets_of(node_type))
    there = {zone for zone, ids in found.subnets.items() if not own or own & set(ids)} or set(
        network.zones(facts.clients)
    )
    wanted = set(node_type.zones) or there
    if unknown := wanted - there:
        return Problem(
            f"node type {node_type.name}: no subnet in {', '.join(sorted(unknown))}",
            f"There are subnets in {', '.join(sorted(there))}.",
        )
    if not wanted & offered:
        return Problem(
            f"node type {node_type.name}: {', '.join(sorted(wanted))} have no machines of type {kind.name}",
            f"There are some in {', '.join(sorted(offered)) or 'no zone of the region'}.",
        )
    return kind, image


def _fitting(facts: Facts, node_type: NodeType, kind: InstanceType, image: Image) -> Iterator[Problem]:
    """Whether what a type asks for goes together."""
    name = node_type.name
    if image.architecture != kind.architecture:
        yield Problem(
            f"node type {name}: image {image.id} is for {image.architecture}, {kind.name} is {kind.architecture}",
            _CORRECT,
        )
    if not (facts.spec.auth.ssh_user or image.user):
        yield Problem(
            f"node type {name}: image {image.id} ({image.name}) does not say whom one is there",
            "Say it in auth.ssh_user.",
        )
    if image.python is not None and image.python < LEAST_PYTHON and _uses_its_python(facts, name):
        yield Problem(
            f"node type {name}: image {image.name} has Python {text(image.python)}, and nodes need "
            f"{text(LEAST_PYTHON)} or newer",
            "Name another image (node_config.ImageId), or where its machines have a newer Python (provider.python).",
        )
    said = facts.spec.auth.ssh_user
    if said and image.user and said != image.user and not facts.catalog.names_image(node_type):
        yield Problem(
            f"node type {name}: auth.ssh_user is {said}, and on machines of {image.name} one is {image.user}",
            f"{image.user} it will be. If {said} is meant, name the image (node_config.ImageId).",
            fatal=False,
        )
    disks = {str(one.get("DeviceName")) for one in node_type.node_config.get("BlockDeviceMappings") or ()}
    if disks & _ROOTS - {image.root_device} and image.root_device not in disks:
        yield Problem(
            f"node type {name}: {', '.join(sorted(disks & _ROOTS))} is not the first disk of {image.name}, which is "
            f"{image.root_device}: it will be a further, empty one",
            _CORRECT,
            fatal=False,
        )
    if kind.has_gpus and image.name.startswith(("debian-", "ubuntu/")):
        yield Problem(
            f"node type {name}: image {image.name} has no driver for the GPUs of {kind.name}",
            "Name one that has (node_config.ImageId: dlami), or install it in setup_commands.",
            fatal=False,
        )
    for key in ("CPU", "GPU"):
        if node_type.resources.get(key, 0.0) > kind.resources.get(key, 0.0):
            yield Problem(
                f"node type {name}: {kind.name} has {kind.resources.get(key, 0.0):g} {key}, resources says "
                f"{node_type.resources[key]:g}",
                "The scheduler will count what resources says.",
                fatal=False,
            )
    markets = launches.markets(node_type, facts.catalog.template(node_type))
    price = partial(facts.prices.of, node_type, kind.name)
    yield from offers.too_dear(node_type, kind.name, markets, price)


def _uses_its_python(facts: Facts, name: str) -> bool:
    """Whether nodes of the type run on the `python3` of their image."""
    spec = facts.spec
    kind = spec.available_node_types.get(name)
    in_container = spec.docker is not None or (kind is not None and kind.docker is not None)
    return facts.config.python == "python3" and not in_container and spec.runtime.is_uploaded


def target(facts: Facts, node_type: NodeType) -> Target | None:
    """What the runtime of a type's nodes is made for; None: its image does not say."""
    kind = facts.catalog.whole(node_type)
    image = facts.catalog.image(kind)
    if image.python is None or image.python < LEAST_PYTHON or not _uses_its_python(facts, node_type.name):
        return None
    return Target(image.python, MACHINES[image.architecture])


def _permissions(
    facts: Facts, usable: Sequence[tuple[_Type, InstanceType, Image]], found: Network
) -> Iterator[Problem]:
    """Which of the calls that `up` makes would be refused."""
    ec2, vpc_id = facts.clients, found.vpc_id
    asks: list[tuple[str, Callable[[], ProviderError | None]]] = []

    def ask(method: str, **parameters: Any) -> None:
        asks.append((method, lambda: ec2.allowed(method, **parameters)))

    if not vpc_id:
        ask("create_vpc", CidrBlock="10.0.0.0/16")
    elif not found.group_id:
        ask("create_security_group", GroupName="clusterctl-check", Description="check", VpcId=vpc_id)
    if not facts.config.key_pair:
        ask("import_key_pair", KeyName="clusterctl-check", PublicKeyMaterial=b"ssh-ed25519 AAAA")
    for kind, _, image in usable if vpc_id else ():
        try:
            trial = _trial(facts, kind, image, found)
        except Config as wrong:
            yield Problem(f"node type {kind.given.name}: {wrong}", _CORRECT)
        else:
            ask("run_instances", **trial)
    seen: set[str] = set()
    for method, would in asks:
        try:
            error = would()
        except Transient as problem:
            error = problem
        if isinstance(error, Auth) and str(error) not in seen:
            seen.add(str(error))
            yield Problem(str(error), "The cluster cannot come up without it.")
        elif isinstance(error, Config | NotFound) and method == "run_instances":
            yield Problem(str(error), _CORRECT)


def _trial(facts: Facts, kind: _Type, image: Image, found: Network) -> Mapping[str, Any]:
    """A launch that is asked about and not made: with what is there already, without what `up` has yet to make."""
    spot = launches.is_spot(kind.whole)
    zones = [*kind.whole.zones, *sorted(found.subnets)]
    own = launches.subnets_of(kind.whole)
    zone, subnet = next(
        ((zone, id) for zone in zones for id in found.subnets.get(zone, ()) if not own or id in own),
        ("", _NOWHERE),
    )
    key = facts.config.key_pair.key_name if facts.config.key_pair else ""
    place = launches.Place(
        *(image.id, image.user, subnet, (found.group_id,) if found.group_id else (), key, True),
        template=facts.catalog.template(kind.given),
    )
    tags = {MachineTags.CLUSTER_ID: facts.cluster_id, MachineTags.ROLE: MachineTags.WORKER}
    request = LaunchRequest(
        "check", kind.given, 1, Offer(zone, SPOT if spot else ON_DEMAND), tags, ("check",)
    )
    out = launches.parameters(request, place, tags)
    if not key:
        out.pop("KeyName")
    for interface in out.get("NetworkInterfaces", ()):
        if not interface.get("Groups"):
            interface.pop("Groups", None)
    return out


def _quotas(facts: Facts, kinds: Sequence[tuple[NodeType, InstanceType]]) -> Iterator[Problem]:
    """Whether the account may have as many virtual CPUs as the cluster has at least, and at most."""
    least: dict[str, int] = {}
    most: dict[str, int] = {}
    for node_type, kind in kinds:
        code = kind.quota(launches.is_spot(node_type))
        is_head = node_type.name == facts.spec.head_node_type
        least[code] = least.get(code, 0) + kind.vcpus * (node_type.min_workers + is_head)
        most[code] = most.get(code, 0) + kind.vcpus * (node_type.max_workers + is_head)
    for code in filter(None, least):
        try:
            quota = facts.clients.call(
                "service-quotas", "get_service_quota", ServiceCode="ec2", QuotaCode=code
            )["Quota"]
        except ProviderError:
            continue  # we may not look, or the account has the default: the launch would say so
        value, name = float(quota["Value"]), quota.get("QuotaName", code)
        if most[code] <= value:
            continue
        fatal = least[code] > value
        count, of = (least[code], "at least") if fatal else (most[code], "up to")
        yield Problem(
            f"the cluster has {of} {count} virtual CPUs that count towards the quota '{name}', which is {value:g}",
            "Ask AWS for more (Service Quotas), or lower the number of workers.",
            fatal=fatal,
        )
