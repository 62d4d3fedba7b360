"""Names and labels. Google allows few letters in either, so what a tag says is written in these, and can be read back.
Pure.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Mapping

LONG_TAGS = "clusterctl-tags"
"""Metadata: the tags whose values do not fit a label, as JSON."""
_PREFIX = "clusterctl-"
"""Of the labels that are tags."""
_MOST = 63
_PLAIN = re.compile(r"[a-z0-9-]")
_DIGEST = "__"
"""Begins a label whose value is in the metadata; no encoded value begins so."""
_ESCAPED = re.compile(r"_([0-9a-f]{2})")
_NAMESPACE = uuid.UUID("6f3f1c0e-5f0a-4a53-9a55-0f2f3f8f6c11")


def label(value: str) -> str:
    """A tag's value as a label's: other letters than a-z, 0-9 and - become _xx, byte by byte. One that is too long
    becomes a digest, for filters only."""
    found = "".join(
        letter if _PLAIN.match(letter) else "".join(f"_{byte:02x}" for byte in letter.encode())
        for letter in value
    )
    if len(found) <= _MOST:
        return found
    return _DIGEST + hashlib.sha256(value.encode()).hexdigest()[:40]


def value(found: str) -> str:
    """What `label` was made of."""
    parts = _ESCAPED.split(found)
    data = b"".join(bytes.fromhex(part) if index % 2 else part.encode() for index, part in enumerate(parts))
    return data.decode(errors="replace")


def write(tags: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """Labels, and the metadata for what does not fit ("": it all does)."""
    labels = {key: label(text) for key, text in tags.items()}
    long = {key: tags[key] for key, text in labels.items() if text.startswith(_DIGEST)}
    return labels, json.dumps(long) if long else ""


def is_tag(key: str) -> bool:
    """Whether a label of that key is a tag of ours."""
    return key.startswith(_PREFIX)


def read(labels: Mapping[str, str], long: str) -> dict[str, str]:
    """The tags among an instance's labels."""
    tags = {key: value(text) for key, text in labels.items() if is_tag(key)}
    try:
        known = json.loads(long) if long else {}
    except ValueError:  # somebody changed it
        known = {}
    return {**tags, **{key: str(text) for key, text in known.items() if key in tags}}


def filter_of(tags: Mapping[str, str]) -> str:
    """The filter for what carries all these tags."""
    return " AND ".join(f'(labels.{key} = "{label(text)}")' for key, text in tags.items())


def slug(text: str, most: int) -> str:
    """A beginning for names of resources, which a person recognises."""
    found = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:most].strip("-")
    return found if found[:1].isalpha() else f"c-{found}".strip("-")


def digest(*parts: str) -> str:
    """What makes a name unique, and the same each time."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def request_id(*parts: str) -> str:
    """By which the platform knows that it was asked before."""
    return str(uuid.uuid5(_NAMESPACE, "\0".join(parts)))


def machine_id(zone: str, name: str) -> str:
    """The id of a machine: names are unique in a zone only."""
    return f"{name}.{zone}"


def place(machine: str) -> tuple[str, str]:
    """Zone and name of a machine's id; "" for what is none."""
    name, _, zone = machine.partition(".")
    return zone, name
