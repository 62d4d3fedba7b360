"""The firewall of a cluster: SSH from outside, everything among its machines. Rules have no labels; these are known by
their names, which follow from whose cluster it is and what it is called. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from . import names

Json = dict[str, Any]
_COMPARED = ("network", "sourceRanges", "sourceTags", "targetTags", "allowed")


def network_tag(owner: str, cluster_name: str) -> str:
    """By which the rules know the cluster's machines; begins the rules' names."""
    return f"{names.slug(cluster_name, 30)}-{names.digest(owner, cluster_name)}"


def rules(tag: str, networks: Sequence[str], sources: Sequence[str]) -> list[Json]:
    """The rules to have.

    Args:
        networks: links, in the order of the spec.
        sources: address ranges that may enter by SSH.
    """
    out: list[Json] = []
    for index, network in enumerate(networks):
        number = f"-{index + 1}" if index else ""
        about = "made by clusterctl; `clusterctl down` removes it"
        common = {"network": network, "direction": "INGRESS", "targetTags": [tag], "description": about}
        out.append(
            {
                **common,
                "name": f"{tag}-ssh{number}",
                "sourceRanges": [*sources],
                "allowed": [{"IPProtocol": "tcp", "ports": ["22"]}],
            }
        )
        out.append(
            {
                **common,
                "name": f"{tag}-internal{number}",
                "sourceTags": [tag],
                "allowed": [{"IPProtocol": protocol} for protocol in ("tcp", "udp", "icmp")],
            }
        )
    return out


def is_same(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    """Whether a rule does what it should."""
    return all(_plain(wanted, key) == _plain(found, key) for key in _COMPARED)


def of_cluster(found: Sequence[Mapping[str, Any]], tag: str) -> list[str]:
    """The names of the cluster's rules among all."""
    ours = (f"{tag}-ssh", f"{tag}-internal")
    return [
        str(rule["name"])
        for rule in found
        if tag in rule.get("targetTags", ()) and str(rule["name"]).startswith(ours)
    ]


def _plain(rule: Mapping[str, Any], key: str) -> Any:
    value = rule.get(key)
    if key == "network":
        return str(value).partition("projects/")[2] or value
    return sorted(json.dumps(item, sort_keys=True) for item in value) if isinstance(value, list) else value
