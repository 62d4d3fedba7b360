"""What only Ray's cluster YAML has: written into the document in our words before it is read, or named.

An error, where going on without it would give the user something else than the file says; a warning where it is
harmless. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import yaml

from . import editing, provider_names, provider_type
from .definition import ClusterSpec
from .positions import Path, Problem, at
from .provider_type import RaysCloud
from .ray_start import parse_start
from .reader import Reader

_TYPES, _HEAD_TYPE = "available_node_types", "head_node_type"
_MAX_WORKERS = 2
"""Of a file that leaves to Ray what the head is, and names no limit."""

_REFUSED: Mapping[str, Mapping[str, str]] = {
    "": {
        "autoscaling_mode": "remove it; `upscaling_speed` says how fast a cluster grows",
        "initial_workers": "remove it; `min_workers` of a node type are there from the start",
        "no_restart": "say it when it is wanted: clusterctl up --no-restart",
        "target_utilization_fraction": "remove it; `upscaling_speed` says how fast a cluster grows",
    },
    "provider": {
        "coordinator_address": "there is no such server: write `provider: {type: ssh, head: ..., workers: [...]}`, and "
        "a machine that another cluster has is refused by the machine itself",
        "disable_node_updaters": "nodes are always set up by the launcher; remove it",
        "external_head_ip": "write the address by which you reach the head as `head_ip`, which the workers must reach "
        "too, or go through a machine of their network: auth.ssh_proxy_jump",
        "module": "Ray's node providers have another protocol; write one of ours, and name it in `provider: {type: "
        "external, class: package.module:Class}` (docs/adding-a-provider.md)",
        "use_external_head_ip": "remove it; what machines listen at is the address by which they are reached",
    },
    "auth": {
        "ssh_proxy_use_node_id": "machines are reached by their addresses: `ssh_proxy_command` gets these as %h",
    },
}
"""Keys that cannot be honoured, by the place where Ray has them, and what to do. "" is the top level."""

_PORTS = ("--port", "--dashboard-port")
"""What the launcher has to know also where Ray's own command line is run."""
_BASHRC = re.compile(r">>?\s*[\"']?(~|\$HOME|\$\{HOME\})/\.(bashrc|bash_profile|profile)\b")
_INSTALLS_RAY = re.compile(r"\bpip3?\s+install\b[^;&|]*[\s\"']ray(\[[\w,-]+\])?([\s\"'=<>~!@;]|$)")


def translate(root: yaml.Node) -> list[Problem]:
    """Changes the document in place; returns what is to be said about it. What is odd is left for the reader."""
    if not isinstance(root, yaml.MappingNode):
        return []
    notes: list[Problem] = []
    _refuse(root, (), "", notes)
    provider, auth = editing.get(root, "provider"), editing.get(root, "auth")
    if isinstance(auth, yaml.MappingNode):
        _drop_unless_true(auth, "ssh_proxy_use_node_id")
        _refuse(auth, ("auth",), "auth", notes)
    if not isinstance(provider, yaml.MappingNode):
        return notes
    kind = editing.get(provider, "type")
    name = kind.value if isinstance(kind, yaml.ScalarNode) else ""
    for key in ("disable_node_updaters", "use_external_head_ip"):
        _drop_unless_true(provider, key)
    provider.value = [(key, value) for key, value in provider.value if not editing.is_null(value)]
    _refuse(provider, ("provider",), "provider", notes)
    cloud = provider_type.named(name).rays if name in provider_names.NAMES else None
    if cloud is not None:
        _refuse_keys(provider, ("provider",), cloud.refused, notes)
        _keep_no_stopped(provider, notes)
        _no_cloudwatch(provider, notes)
        _implied_head(root, cloud)
        _old_form(root, provider, cloud, notes)
        _drop_min_workers(root, notes)
    types = editing.get(root, _TYPES)
    if isinstance(types, yaml.MappingNode):
        for type_key, node_type in types.value:
            if isinstance(node_type, yaml.MappingNode):
                _node_type(node_type, (_TYPES, str(type_key.value)), cloud, notes)
    return notes


def check(spec: ClusterSpec, reader: Reader) -> None:
    """Looks at the commands: what cannot be understood is a problem, what is not done as Ray does it a warning."""
    runtime = spec.runtime
    for key, commands in (
        ("head_start_ray_commands", spec.head_start_ray_commands),
        ("worker_start_ray_commands", spec.worker_start_ray_commands),
    ):
        for index, command in enumerate(commands):
            try:
                found = parse_start([command])
            except ValueError as error:
                reader.problem_at((key, index), str(error))
                continue
            unknown = [name for name in found.unknown if not runtime.runs_start_commands or name in _PORTS]
            if unknown:
                words = f"only the node's shell knows the value of {', '.join(unknown)}: write it as it is"
                reader.problem_at((key, index), words)
            if found.unused and not runtime.runs_start_commands:
                reader.warn_at((key, index), "not used: " + ", ".join(found.unused))
    for path, command in _setup_commands(spec):
        if _INSTALLS_RAY.search(command) and runtime.is_uploaded:
            reader.warn_at(
                path, "it installs Ray, which the nodes do not need: the engine is brought along; remove it"
            )
        if _BASHRC.search(command):
            reader.warn_at(
                path,
                "no command here reads this file, which is for log-ins: write what the later ones need into them",
            )


def _setup_commands(spec: ClusterSpec) -> list[tuple[Path, str]]:
    found: list[tuple[Path, str]] = []
    for key in ("initialization_commands", "setup_commands", "head_setup_commands", "worker_setup_commands"):
        found += [((key, index), command) for index, command in enumerate(getattr(spec, key))]
    for name, kind in spec.available_node_types.items():
        for key in ("initialization_commands", "worker_setup_commands"):
            path = (_TYPES, name, key)
            found += [((*path, index), command) for index, command in enumerate(getattr(kind, key) or ())]
    return found


def _refuse(mapping: yaml.MappingNode, path: Path, place: str, notes: list[Problem]) -> None:
    _refuse_keys(mapping, path, _REFUSED[place], notes)


def _refuse_keys(
    mapping: yaml.MappingNode, path: Path, refused: Mapping[str, str], notes: list[Problem]
) -> None:
    for key, advice in refused.items():
        node = editing.key_of(mapping, key)
        if node is not None and not editing.is_empty(editing.pop(mapping, key)):
            notes.append(at(node, (*path, key), f"not supported: {advice}"))


def _drop_unless_true(mapping: yaml.MappingNode, key: str) -> None:
    value = editing.get(mapping, key)
    if isinstance(value, yaml.ScalarNode) and value.value.lower() == "false":
        editing.pop(mapping, key)


def _warn(node: yaml.Node, path: Path, message: str, notes: list[Problem]) -> None:
    notes.append(at(node, path, message, is_fatal=False))


def _keep_no_stopped(provider: yaml.MappingNode, notes: list[Problem]) -> None:
    """Ray keeps idle machines stopped, unless it is told not to."""
    value = editing.pop(provider, "cache_stopped_nodes")
    if isinstance(value, yaml.ScalarNode) and value.value.lower() == "true":
        words = (
            "not used: workers that idle are ended, never stopped; `clusterctl stop` keeps the head's machine"
        )
        _warn(value, ("provider", "cache_stopped_nodes"), words, notes)


def _no_cloudwatch(provider: yaml.MappingNode, notes: list[Problem]) -> None:
    """What it sets up watches the machines; they run the same without it."""
    key = editing.key_of(provider, "cloudwatch")
    if key is not None and not editing.is_empty(editing.pop(provider, "cloudwatch")):
        words = "not used: `setup_commands` can install the agent with a configuration of your own"
        _warn(key, ("provider", "cloudwatch"), words, notes)


def _implied_head(root: yaml.MappingNode, cloud: RaysCloud) -> None:
    """A file with a node type of the name that Ray's defaults have for the head need not say which is the head's."""
    types = editing.get(root, _TYPES)
    if editing.get(root, _HEAD_TYPE) is not None or not isinstance(types, yaml.MappingNode):
        return
    key = editing.key_of(types, cloud.head_type)
    if key is None:
        return
    editing.put(root, _HEAD_TYPE, editing.text(key, cloud.head_type))
    if editing.get(root, "max_workers") is None:
        editing.put(root, "max_workers", editing.number(key, _MAX_WORKERS))


def _old_form(
    root: yaml.MappingNode, provider: yaml.MappingNode, cloud: RaysCloud, notes: list[Problem]
) -> None:
    """The two node types of a file that names none: `head_node` and `worker_nodes` of before there were node types, or
    what Ray takes for granted."""
    old: dict[str, yaml.MappingNode] = {}
    for role, key in (("head", "head_node"), ("worker", "worker_nodes")):
        place = editing.key_of(root, key)
        value = editing.pop(root, key)
        if place is None or not isinstance(value, yaml.MappingNode) or editing.is_empty(value):
            continue
        old[role] = value
        if editing.get(root, _TYPES) is not None:
            _warn(place, (key,), f"not used: the machines are those of {_TYPES}", notes)
    if editing.get(root, _TYPES) is not None or editing.get(root, _HEAD_TYPE) is not None:
        return
    kinds: list[tuple[str, yaml.Node]] = []
    for role in ("head", "worker"):
        kind = editing.mapping(old.get(role, provider), [])
        if role in old:
            resources = editing.pop(old[role], "resources")
            if resources is not None:
                editing.put(kind, "resources", resources)
            editing.put(kind, "node_config", old[role])
        else:
            implied = [(key, editing.text(provider, value)) for key, value in cloud.implied.items()]
            editing.put(kind, "node_config", editing.mapping(provider, implied))
            if role == "worker":
                editing.put(kind, "spot", editing.boolean(provider, True))
        if role == "worker":
            least, most = editing.pop(root, "min_workers"), editing.get(root, "max_workers")
            editing.put(kind, "min_workers", least or editing.number(provider, 0))
            editing.put(kind, "max_workers", most or editing.number(provider, _MAX_WORKERS))
        kinds.append((role, kind))
    editing.put(root, _TYPES, editing.mapping(provider, kinds))
    editing.put(root, _HEAD_TYPE, editing.text(provider, "head"))


def _node_type(kind: yaml.MappingNode, path: Path, cloud: RaysCloud | None, notes: list[Problem]) -> None:
    key = editing.key_of(kind, "priority")
    if key is not None:
        editing.pop(kind, "priority")
        _warn(key, (*path, "priority"), "not used: what fits best is taken, and of these the cheapest", notes)
    config = editing.get(kind, "node_config")
    if cloud is not None and isinstance(config, yaml.MappingNode):
        notes.extend(cloud.translate(config, (*path, "node_config")))


def _drop_min_workers(root: yaml.MappingNode, notes: list[Problem]) -> None:
    """Ray takes no notice of it where there are node types."""
    place = editing.key_of(root, "min_workers")
    if place is not None and editing.get(root, _TYPES) is not None:
        editing.pop(root, "min_workers")
        _warn(place, ("min_workers",), "not used: the number belongs into the node types", notes)
