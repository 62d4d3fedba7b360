"""Tags as EC2 has them. Pure.

Machines of one launch get the same tags. So which machine is which of them is not a tag of its own: all carry the list
of names, and each has its place in it, which EC2 tells (`AmiLaunchIndex`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from autoscaler.provider import MachineTags

_NAMES = "clusterctl-instance-ids"
_SEPARATOR = " "
_KEY_SIZE = 127
_MOST = 40
"""Of the operator's own: a resource has 50 at most, and some are ours."""
_LETTERS = re.compile(r"[\w\s.:/=+\-@]*\Z")
"""What IAM takes, whose roles carry the tags, too."""
_RESERVED = ("aws:", "clusterctl-")
_VALUE_SIZE = 256
"""The most letters of a tag's value."""
USER = "clusterctl-ssh-user"
"""Tag: whom one is there by SSH."""


def wrong(tags: Mapping[str, str]) -> str:
    """What of an operator's tags AWS or we refuse, in words; "": nothing."""
    if len(tags) > _MOST:
        return f"there are {len(tags)}, and {_MOST} is the most"
    for key, value in tags.items():
        if not 1 <= len(key) <= _KEY_SIZE:
            return f"the key {key!r} must have 1 to {_KEY_SIZE} letters"
        if len(value) >= _VALUE_SIZE:
            return f"the value of {key!r} has more than {_VALUE_SIZE - 1} letters"
        if key.lower().startswith(_RESERVED):
            return f"keys that begin with {_RESERVED[0]} or {_RESERVED[1]} are not the operator's: {key!r}"
        if not (_LETTERS.match(key) and _LETTERS.match(value)):
            return f"{key!r}: {value!r} has other letters than a-z, 0-9, spaces and _.:/=+-@, and their like"
    return ""


def pairs(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """As the API takes them."""
    return [{"Key": key, "Value": value} for key, value in sorted(tags.items())]


def read(found: Iterable[Mapping[str, str]] | None) -> dict[str, str]:
    """As the API gives them."""
    return {tag["Key"]: tag["Value"] for tag in found or ()}


def specification(kind: str, tags: Mapping[str, str]) -> dict[str, Any]:
    """Tags that are there from the first moment of what is made."""
    return {"ResourceType": kind, "Tags": pairs(tags)}


def filters(tags: Mapping[str, str]) -> list[dict[str, Any]]:
    """What finds all that carries these tags."""
    return [{"Name": f"tag:{key}", "Values": [value]} for key, value in tags.items()]


def cluster_filter(cluster_id: str) -> list[dict[str, Any]]:
    """What finds all that is tagged with the cluster."""
    return filters({MachineTags.CLUSTER_ID: cluster_id})


def names(instance_ids: Sequence[str]) -> dict[str, str]:
    """The tags with the names of a launch's machines, in as many as it takes."""
    out: dict[str, str] = {}
    line = ""
    for name in instance_ids:
        longer = f"{line}{_SEPARATOR}{name}" if line else name
        if len(longer) > _VALUE_SIZE:
            out[f"{_NAMES}-{len(out)}"] = line
            longer = name
        line = longer
    out[f"{_NAMES}-{len(out)}"] = line
    return out


def of_machine(tags: Mapping[str, str], index: int) -> dict[str, str]:
    """The tags of the machine with that place in its launch: with its own name instead of the list."""
    listed: list[str] = []
    number = 0
    while (text := tags.get(f"{_NAMES}-{number}")) is not None:
        listed += text.split(_SEPARATOR)
        number += 1
    own = {key: value for key, value in tags.items() if not key.startswith(f"{_NAMES}-")}
    if index < len(listed):
        own[MachineTags.INSTANCE_ID] = listed[index]
    return own
