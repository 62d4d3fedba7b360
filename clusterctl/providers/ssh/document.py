"""Specs of one's own machines. What they may leave out is written into the YAML before it is read, at the place of the
provider: Ray's form (`type: local` with `head_ip` and `worker_ips`), and the node types, which the machines imply. What
they name is looked at after. Pure."""

from __future__ import annotations

import yaml

from clusterctl.spec.definition import ClusterSpec
from clusterctl.spec.editing import get, is_null, is_text, mapping, number, pop, put, text
from clusterctl.spec.host_names import split_machine
from clusterctl.spec.positions import Path, Problem, at
from clusterctl.spec.reader import Reader

from .config import SshProvider

_TYPES, _HEAD_TYPE = "available_node_types", "head_node_type"


def complete(root: yaml.MappingNode) -> list[Problem]:
    """Changes the document in place; returns what is missing in Ray's form. Whatever else is odd in it is left for the
    reader to report."""
    provider = get(root, "provider")
    if not isinstance(provider, yaml.MappingNode):
        return []
    problems: list[Problem] = []
    kind = get(provider, "type")
    rays = is_text(kind, "local") and any(get(provider, name) for name in ("head_ip", "worker_ips"))
    if rays:
        head = get(provider, "head_ip")
        if head is None or is_null(head):
            problems.append(at(head or provider, ("provider",), "the key 'head_ip' is missing"))
            pop(provider, "head_ip")
            put(provider, "head_ip", text(provider, "missing"))
        assert isinstance(kind, yaml.ScalarNode)
        kind.value = "ssh"
        for key, _ in provider.value:
            if isinstance(key, yaml.ScalarNode):
                key.value = {"head_ip": "head", "worker_ips": "workers"}.get(key.value, key.value)
    if not is_text(kind, "ssh") or get(root, _TYPES) is not None:
        return problems
    least = pop(root, "min_workers") if rays else None
    workers = get(provider, "workers")
    count = len(workers.value) if isinstance(workers, yaml.SequenceNode) else 0
    all_of_them = number(provider, count)
    worker = mapping(provider, [("min_workers", least or all_of_them), ("max_workers", all_of_them)])
    types = mapping(provider, [("head", mapping(provider, [])), *([("worker", worker)] if count else [])])
    put(root, _TYPES, types)
    if get(root, _HEAD_TYPE) is None:
        put(root, _HEAD_TYPE, text(provider, "head"))
    return problems


def check(spec: ClusterSpec, reader: Reader) -> None:
    """Looks at the machines: each is named as one can be, and once."""
    assert isinstance(spec.provider, SshProvider)
    if spec.autostop is not None and not spec.autostop.down:
        words = "SSH hosts cannot be stopped, only given back: add `down: true` to it"
        reader.problem_at(("autostop",), words)
    seen: dict[tuple[str, int], str] = {}
    places: list[tuple[str, Path]] = [(spec.provider.head, ("provider", "head"))]
    places += [(name, ("provider", "workers", index)) for index, name in enumerate(spec.provider.workers)]
    for name, path in places:
        place = _place(name, path, reader)
        if place in seen:
            reader.problem_at(path, f"'{name}' is given twice: it is {seen[place]} already")
        elif place:
            seen[place] = "the head" if path[-1] == "head" else "a worker"
    entries = {spec.provider.head, *spec.provider.workers}
    for name, address in spec.provider.addresses.items():
        path = ("provider", "addresses", name)
        _place(address, path, reader)
        if name not in entries:
            reader.problem_at(path, f"'{name}' is neither provider.head nor one of provider.workers")
    for kind_name, kind in spec.available_node_types.items():
        hosts = kind.node_config.get("hosts", ())
        for index, name in enumerate(hosts if isinstance(hosts, list) else ()):
            path = (_TYPES, kind_name, "node_config", "hosts", index)
            place = _place(str(name), path, reader)
            if place and seen.get(place) != "a worker":
                reader.problem_at(path, f"'{name}' is none of provider.workers")
    wanted = sum(kind.min_workers for kind in spec.available_node_types.values())
    if wanted > len(spec.provider.workers) and not reader.problems:
        known = f"machines for workers: {len(spec.provider.workers)}"
        reader.problem_at((_TYPES,), f"the types' min_workers are {wanted} together, above the {known}")


def _place(name: str, path: Path, reader: Reader) -> tuple[str, int] | None:
    try:
        _, host, port = split_machine(name)
    except ValueError as error:
        reader.problem_at(path, str(error))
        return None
    return host, port or 22
