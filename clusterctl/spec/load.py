"""From a file to a checked, complete `ClusterSpec`."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path as FilePath

import yaml
from msgspec import inspect

from clusterctl.errors import NotFound, SpecError

from . import editing, provider_type, ray_yaml
from .definition import ClusterSpec
from .host_names import split_machine
from .positions import Path, Problem, compose
from .reader import Reader

_COMMON_RESOURCES = {name.lower(): name for name in ("CPU", "GPU", "memory", "object_store_memory")}


def load_file(
    file: str,
    environ: Mapping[str, str] | None = None,
    on_warning: Callable[[str], None] = lambda text: None,
) -> ClusterSpec:
    """Reads a spec. `on_warning` is told which keys have no effect, a line each.

    Raises:
        NotFound: there is no such file.
        SpecError: the spec is wrong; every problem is listed.
    """
    try:
        text = FilePath(file).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NotFound(
            f"there is no file {file}", "Name a cluster YAML, e.g. cluster-configs/local.yaml."
        ) from None
    except OSError as error:
        raise SpecError(
            f"{file} cannot be read: {error.strerror or error}", "Name a cluster YAML that you may read."
        ) from error
    except UnicodeDecodeError as error:
        raise SpecError(
            f"{file} is not text: byte {error.start} is not UTF-8", "Write the spec as YAML in UTF-8."
        ) from error
    return load_text(text, file, environ, on_warning)


def load_text(
    text: str,
    file: str = "<spec>",
    environ: Mapping[str, str] | None = None,
    on_warning: Callable[[str], None] = lambda text: None,
) -> ClusterSpec:
    """Like `load_file`, for text at hand. `file` names it in messages."""
    spec, problems = read_text(text, os.environ if environ is None else environ)
    for problem in problems:
        if not problem.is_fatal:
            on_warning(problem.render(file))
    if spec is None:
        lines = [problem.render(file) for problem in problems if problem.is_fatal]
        raise SpecError("\n".join(lines), f"{len(lines)} problem{'s' if len(lines) > 1 else ''} in {file}.")
    return spec


def read_text(text: str, environ: Mapping[str, str]) -> tuple[ClusterSpec | None, list[Problem]]:
    """Returns the complete spec and its warnings, or None and all problems, in the order of the file."""
    root, problems = compose(text)
    if root is None:
        return None, problems or [Problem(1, 1, (), "the file is empty; a spec needs at least cluster_name")]
    notes = _complete(root)
    notes += ray_yaml.translate(root)
    reader = Reader(environ, _homes())
    spec = reader.read(root, ClusterSpec)
    if isinstance(spec, ClusterSpec):
        ray_yaml.check(spec, reader)
        _check_node_configs(spec, reader)
        _check_across(spec, reader)
        _check_supported(spec, reader)
        provider_type.named(spec.provider.type_name).check(spec, reader)
    found = sorted(
        [*notes, *reader.problems, *reader.warnings], key=lambda problem: (problem.line, problem.column)
    )
    if not isinstance(spec, ClusterSpec) or any(problem.is_fatal for problem in found):
        return None, found
    return spec, found


def _complete(root: yaml.Node) -> list[Problem]:
    """Writes what the document may leave out into it, in place; returns what is missing."""
    if not isinstance(root, yaml.MappingNode):
        return []
    types, head_type = "available_node_types", "head_node_type"
    if editing.get(root, "provider") is None and editing.get(root, types) is None:
        # That a provider is missing is said, and not of what it might have implied as well.
        editing.put(root, types, editing.mapping(root, [("head", editing.mapping(root, []))]))
        if editing.get(root, head_type) is None:
            editing.put(root, head_type, editing.text(root, "head"))
    return [problem for kind in provider_type.everyone().values() for problem in kind.complete(root)]


@functools.cache
def _homes() -> Mapping[str, list[Path]]:
    """Where each key of the definition belongs, to explain misplaced ones."""
    homes: dict[str, list[Path]] = {}

    def visit(kind: inspect.Type, path: Path) -> None:
        if isinstance(kind, inspect.Metadata):
            visit(kind.type, path)
        elif isinstance(kind, inspect.UnionType):
            for option in kind.types:
                visit(option, path)
        elif isinstance(kind, inspect.DictType):
            visit(kind.value_type, (*path, "<name>"))
        elif isinstance(kind, inspect.StructType):
            for field in kind.fields:
                homes.setdefault(field.encode_name, []).append(path)
                visit(field.type, (*path, field.encode_name))

    visit(inspect.type_info(ClusterSpec), ())
    return homes


def _check_node_configs(spec: ClusterSpec, reader: Reader) -> None:
    kind = provider_type.named(spec.provider.type_name).node_config
    if kind is None:
        return
    for name in spec.available_node_types:
        path: Path = ("available_node_types", name, "node_config")
        if path in reader.values:
            sub = Reader(reader.environ)
            sub.read(reader.values[path], kind, path)
            reader.problems.extend(sub.problems)


def _check_across(spec: ClusterSpec, reader: Reader) -> None:
    types = spec.available_node_types
    if spec.head_node_type not in types:
        names = ", ".join(sorted(types))
        reader.problem_at(
            ("head_node_type",),
            f"there is no node type '{spec.head_node_type}'; available_node_types has: {names}",
        )
    for name, node_type in types.items():
        path: Path = ("available_node_types", name)
        for resource in node_type.resources:
            common = _COMMON_RESOURCES.get(resource.lower(), resource)
            if common != resource:
                words = f"counts as a custom resource: did you mean '{common}'?"
                reader.warn_at((*path, "resources", resource), words)
        limit = node_type.max_workers
        if limit is not None and node_type.min_workers > limit:
            reader.problem_at(
                (*path, "min_workers"), f"min_workers {node_type.min_workers} is above max_workers {limit}"
            )
        scales = name != spec.head_node_type and spec.runtime.autoscales
        if limit is None and spec.max_workers is None and scales:
            reader.warn_at(
                path,
                f"it never grows beyond its min_workers, {node_type.min_workers}: "
                "neither it nor the cluster sets max_workers",
            )
    wanted = sum(node_type.min_workers for node_type in types.values())
    if spec.max_workers is not None and wanted > spec.max_workers:
        reader.problem_at(
            ("max_workers",),
            f"the types' min_workers are {wanted} together, above max_workers {spec.max_workers}",
        )


def _check_supported(spec: ClusterSpec, reader: Reader) -> None:
    """Keys that are valid and that this version cannot honour: said, never ignored."""
    _check_runtime(spec, reader)
    for name, node_type in spec.available_node_types.items():
        if not provider_type.named(spec.provider.type_name).has_markets:
            asked = {"spot": node_type.spot, "zones": node_type.zones, "max_price": node_type.max_price}
            for key in (key for key, value in asked.items() if value):
                reader.problem_at(
                    ("available_node_types", name, key),
                    f"machines of provider type {spec.provider.type_name} do not support this key; remove it",
                )
    for path, given in _node_dirs(spec).items():
        if given and not given.startswith(("/", "~/")):
            reader.problem_at(path, f"'{given}' must be an absolute path, or begin with ~/")
    for one in filter(str.strip, spec.auth.ssh_proxy_jump.split(",")):
        try:
            split_machine(one)
        except ValueError as error:
            reader.problem_at(("auth", "ssh_proxy_jump"), str(error))
    for index, name in enumerate(spec.rsync_filter):
        if not name.strip() or set(name) & set("/ *?!"):
            reader.problem_at(
                ("rsync_filter", index),
                f"{name!r} is not the name of an ignore file, such as .gitignore; patterns belong in rsync_exclude",
            )


def _node_dirs(spec: ClusterSpec) -> dict[Path, str]:
    """Where the spec says in which folder nodes keep what outlives them."""
    of_types: dict[Path, str] = {
        ("available_node_types", name, "node_dir"): kind.node_dir
        for name, kind in spec.available_node_types.items()
    }
    return {("node_dir",): spec.node_dir, **of_types}


def _check_runtime(spec: ClusterSpec, reader: Reader) -> None:
    runtime = spec.runtime
    for key, message in runtime.problems():
        reader.problem_at(("runtime", key), message)
    if spec.autostop is not None and not runtime.has_our_head:
        reader.problem_at(
            ("autostop",),
            f"{runtime.name} has no head of ours that could watch for idleness; end the cluster with clusterctl down",
        )
    for key in ("cluster_synced_files", "file_mounts_sync_continuously"):
        if getattr(spec, key) and not runtime.has_our_head:
            reader.problem_at(
                (key,),
                f"a cluster that runs {runtime.name} itself has no process that could do it; use file_mounts",
            )
    for name, kind in spec.available_node_types.items():
        if not runtime.autoscales and kind.max_workers is not None and kind.max_workers > kind.min_workers:
            reader.warn_at(
                ("available_node_types", name, "max_workers"),
                f"nothing scales a cluster that runs {runtime.name} itself: there are always min_workers, "
                f"{kind.min_workers}",
            )


def zones(spec: ClusterSpec, name: str) -> tuple[str, ...]:
    """Where machines of the node type `name` may be, the best place first. Empty: anywhere."""
    return tuple(spec.available_node_types[name].zones) or spec.provider.zones


def worker_limit(spec: ClusterSpec, name: str) -> int:
    """How many workers of the node type `name` the autoscaler may run. The head's type has none unless it
    says so."""
    node_type = spec.available_node_types[name]
    if not spec.runtime.autoscales:
        return node_type.min_workers
    if node_type.max_workers is not None:
        return node_type.max_workers
    if name == spec.head_node_type or spec.max_workers is None:
        return node_type.min_workers
    return spec.max_workers


def cluster_limit(spec: ClusterSpec) -> int:
    """How many workers the autoscaler may run in all."""
    if spec.max_workers is not None and spec.runtime.autoscales:
        return spec.max_workers
    return sum(worker_limit(spec, name) for name in spec.available_node_types)
