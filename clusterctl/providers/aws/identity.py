"""Who the machines are: the key pair by which they are entered, and the role by which the head asks AWS for workers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from autoscaler.provider import Auth, Config, NotFound, ProviderError
from clusterctl.providers.identity import same_key

from . import policies
from .clients import Clients
from .tagging import cluster_filter, pairs, specification

_PATH = "/clusterctl/"
_POLICY = "machines-of-the-cluster"
_SPOT_ROLE = "AWSServiceRoleForEC2Spot"


def key_name(cluster_id: str) -> str:
    """What the cluster's key pair is called."""
    return f"clusterctl-{cluster_id}"


def ensure_key(clients: Clients, cluster_id: str, public_key: str, tags: Mapping[str, str]) -> None:
    """Makes the key pair of a public key. One of that name that is of another key is replaced."""
    name = key_name(cluster_id)
    try:
        found = clients.ec2("describe_key_pairs", KeyNames=[name], IncludePublicKey=True)["KeyPairs"]
    except NotFound:
        found = []
    if found:
        if same_key(str(found[0].get("PublicKey", "")), public_key):
            return
        clients.ec2("delete_key_pair", KeyName=name)
    clients.ensure(
        "ec2",
        "import_key_pair",
        "InvalidKeyPair.Duplicate",  # an attempt whose answer was lost
        KeyName=name,
        PublicKeyMaterial=public_key.encode(),
        TagSpecifications=[specification("key-pair", tags)],
    )


def remove_keys(clients: Clients, cluster_id: str) -> None:
    """Removes the cluster's key pair."""
    for pair in clients.ec2("describe_key_pairs", Filters=cluster_filter(cluster_id))["KeyPairs"]:
        clients.ec2("delete_key_pair", KeyName=pair["KeyName"])


def ensure_profile(
    clients: Clients, cluster_id: str, policy: Mapping[str, Any], tags: Mapping[str, str]
) -> None:
    """Makes the head's role and its instance profile, and gives the role the policy.

    Raises:
        Auth: we may not make roles.
    """
    name = policies.role_name(cluster_id)
    try:
        _make(
            clients,
            "create_role",
            RoleName=name,
            Path=_PATH,
            AssumeRolePolicyDocument=json.dumps(policies.trust()),
            Description=f"The head of clusterctl's cluster {cluster_id}",
            Tags=pairs(tags),
        )
        clients.young(
            "iam", "put_role_policy", RoleName=name, PolicyName=_POLICY, PolicyDocument=json.dumps(policy)
        )
        _make(clients, "create_instance_profile", InstanceProfileName=name, Path=_PATH, Tags=pairs(tags))
        profile = clients.young("iam", "get_instance_profile", InstanceProfileName=name)["InstanceProfile"]
        if not profile.get("Roles"):
            _make(clients, "add_role_to_instance_profile", InstanceProfileName=name, RoleName=name)
    except Auth as error:
        raise Auth(
            f"{error}. Or name an instance profile whose role may launch machines, in node_config of the head's type: "
            "IamInstanceProfile: {Name: ...}"
        ) from error


def ensure_spot_role(clients: Clients) -> None:
    """The account's own role for spot machines, which the first of them needs. It is the account's, and stays."""
    try:
        clients.iam("get_role", RoleName=_SPOT_ROLE)
    except NotFound:
        _make(clients, "create_service_linked_role", AWSServiceName="spot.amazonaws.com")
    except Auth:
        pass  # we may not look; if it is missing, the launch says so


def remove_profile(clients: Clients, cluster_id: str) -> None:
    """Removes the head's role and profile. Where we may not touch roles, none was made."""
    name = policies.role_name(cluster_id)
    try:
        clients.remove("iam", "remove_role_from_instance_profile", InstanceProfileName=name, RoleName=name)
        clients.remove("iam", "delete_instance_profile", InstanceProfileName=name)
        clients.remove("iam", "delete_role_policy", RoleName=name, PolicyName=_POLICY)
        clients.remove("iam", "delete_role", RoleName=name)
    except Auth:
        if _exists(clients, name):
            raise


def roles_of(clients: Clients, profiles: Sequence[Mapping[str, str]]) -> list[str]:
    """The ARNs of the roles in given instance profiles, named as `IamInstanceProfile` names them.

    Raises:
        Config: there is no such profile.
    """
    out = []
    for given in profiles:
        name = given.get("Name") or given.get("Arn", "").rpartition("/")[2]
        try:
            profile = clients.iam("get_instance_profile", InstanceProfileName=name)["InstanceProfile"]
        except NotFound as error:
            raise Config(f"there is no instance profile {name}") from error
        out += [role["Arn"] for role in profile.get("Roles", ())]
    return out


def _exists(clients: Clients, name: str) -> bool:
    try:
        clients.iam("get_role", RoleName=name)
    except ProviderError:
        return False
    return True


def _make(clients: Clients, method: str, **parameters: Any) -> None:
    """Makes it, unless it is there."""
    clients.ensure("iam", method, "EntityAlreadyExists", "has been taken", **parameters)
