"""What a spec of one's own machines may leave out, written into its YAML before it is read, at the place of the
provider: Ray's form (`type: local` with `head_ip` and `worker_ips`), and the node types, which the machines imply.
Pure."""

from __future__ import annotations

import yaml

_TYPES, _HEAD_TYPE = "available_node_types", "head_node_type"


def complete(root: yaml.Node) -> None:
    """Changes the document in place; whatever is odd in it is left for the reader to report."""
    if not isinstance(root, yaml.MappingNode):
        return
    provider = _get(root, "provider")
    if not isinstance(provider, yaml.MappingNode):
        return
    kind = _get(provider, "type")
    rays = _is(kind, "local") and _get(provider, "head_ip") is not None
    if rays:
        assert isinstance(kind, yaml.ScalarNode)
        kind.value = "ssh"
        for key, _ in provider.value:
            if isinstance(key, yaml.ScalarNode):
                key.value = {"head_ip": "head", "worker_ips": "workers"}.get(key.value, key.value)
    if not _is(kind, "ssh") or _get(root, _TYPES) is not None:
        return
    least = _pop(root, "min_workers") if rays else None
    workers = _get(provider, "workers")
    count = len(workers.value) if isinstance(workers, yaml.SequenceNode) else 0
    number = yaml.ScalarNode("tag:yaml.org,2002:int", str(count), provider.start_mark, provider.end_mark)
    worker = _mapping(provider, [("min_workers", least or number), ("max_workers", number)])
    types = _mapping(provider, [("head", _mapping(provider, [])), *([("worker", worker)] if count else [])])
    root.value.append((_text(provider, _TYPES), types))
    if _get(root, _HEAD_TYPE) is None:
        root.value.append((_text(provider, _HEAD_TYPE), _text(provider, "head")))


def _get(mapping: yaml.MappingNode, name: str) -> yaml.Node | None:
    return next((value for key, value in mapping.value if _is(key, name)), None)


def _pop(mapping: yaml.MappingNode, name: str) -> yaml.Node | None:
    found = _get(mapping, name)
    mapping.value = [(key, value) for key, value in mapping.value if not _is(key, name)]
    return found


def _is(node: yaml.Node | None, text: str) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.value == text


def _text(at: yaml.Node, text: str) -> yaml.ScalarNode:
    return yaml.ScalarNode("tag:yaml.org,2002:str", text, at.start_mark, at.end_mark)


def _mapping(at: yaml.Node, entries: list[tuple[str, yaml.Node]]) -> yaml.MappingNode:
    pairs = [(_text(at, key), value) for key, value in entries]
    return yaml.MappingNode("tag:yaml.org,2002:map", pairs, at.start_mark, at.end_mark)
