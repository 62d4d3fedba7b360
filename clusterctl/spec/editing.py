"""Changes of a YAML document before it is read, so that older or shorter forms become the one that the definition has.
What is written into it has the position of what it was made from. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import yaml


def get(mapping: yaml.MappingNode, name: str) -> yaml.Node | None:
    """The value of a key."""
    return next((value for key, value in mapping.value if is_text(key, name)), None)


def key_of(mapping: yaml.MappingNode, name: str) -> yaml.Node | None:
    """The node of a key itself, to point at."""
    return next((key for key, _ in mapping.value if is_text(key, name)), None)


def pop(mapping: yaml.MappingNode, name: str) -> yaml.Node | None:
    """Takes a key out; returns its value."""
    found = get(mapping, name)
    mapping.value = [(key, value) for key, value in mapping.value if not is_text(key, name)]
    return found


def put(mapping: yaml.MappingNode, name: str, value: yaml.Node) -> None:
    """Adds a key, at the place of its value."""
    mapping.value.append((text(value, name), value))


def is_text(node: yaml.Node | None, value: str) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.value == value


def is_null(node: yaml.Node | None) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"


def is_empty(node: yaml.Node | None) -> bool:
    """Whether it is null, or a mapping or list without entries."""
    return is_null(node) or (isinstance(node, yaml.CollectionNode) and not node.value)


def text(at: yaml.Node, value: str) -> yaml.ScalarNode:
    return yaml.ScalarNode("tag:yaml.org,2002:str", value, at.start_mark, at.end_mark)


def number(at: yaml.Node, value: int) -> yaml.ScalarNode:
    return yaml.ScalarNode("tag:yaml.org,2002:int", str(value), at.start_mark, at.end_mark)


def boolean(at: yaml.Node, value: bool) -> yaml.ScalarNode:
    return yaml.ScalarNode("tag:yaml.org,2002:bool", str(value).lower(), at.start_mark, at.end_mark)


def mapping(at: yaml.Node, entries: Sequence[tuple[str, yaml.Node]]) -> yaml.MappingNode:
    pairs = [(text(at, key), value) for key, value in entries]
    return yaml.MappingNode("tag:yaml.org,2002:map", pairs, at.start_mark, at.end_mark)
