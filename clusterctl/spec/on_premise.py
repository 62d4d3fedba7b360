"""What a spec of one's own machines may leave out, written into its YAML before it is read, at the place of the
provider: Ray's form (`type: local` with `head_ip` and `worker_ips`), and the node types, which the machines imply.
Pure."""

from __future__ import annotations

import yaml

from .editing import get, is_text, mapping, number, pop, put, text

_TYPES, _HEAD_TYPE = "available_node_types", "head_node_type"


def complete(root: yaml.Node) -> None:
    """Changes the document in place; whatever is odd in it is left for the reader to report."""
    if not isinstance(root, yaml.MappingNode):
        return
    provider = get(root, "provider")
    if not isinstance(provider, yaml.MappingNode):
        return
    kind = get(provider, "type")
    rays = is_text(kind, "local") and get(provider, "head_ip") is not None
    if rays:
        assert isinstance(kind, yaml.ScalarNode)
        kind.value = "ssh"
        for key, _ in provider.value:
            if isinstance(key, yaml.ScalarNode):
                key.value = {"head_ip": "head", "worker_ips": "workers"}.get(key.value, key.value)
    if not is_text(kind, "ssh") or get(root, _TYPES) is not None:
        return
    least = pop(root, "min_workers") if rays else None
    workers = get(provider, "workers")
    count = len(workers.value) if isinstance(workers, yaml.SequenceNode) else 0
    all_of_them = number(provider, count)
    worker = mapping(provider, [("min_workers", least or all_of_them), ("max_workers", all_of_them)])
    types = mapping(provider, [("head", mapping(provider, [])), *([("worker", worker)] if count else [])])
    put(root, _TYPES, types)
    if get(root, _HEAD_TYPE) is None:
        put(root, _HEAD_TYPE, text(provider, "head"))
