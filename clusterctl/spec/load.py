"""From a file to a checked, complete `ClusterSpec`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path as FilePath

import msgspec
from msgspec import inspect

from clusterctl.errors import NotFound, SpecError

from . import on_premise, ray_yaml
from .definition import ClusterSpec, Docker
from .platforms.external import CLASS_PATH, ExternalProvider
from .platforms.local import LocalNodeConfig
from .platforms.ssh import SshNodeConfig, SshProvider
from .positions import Path, Problem, compose
from .reader import Reader

NODE_CONFIGS: Mapping[str, type[msgspec.Struct]] = {"local": LocalNodeConfig, "ssh": SshNodeConfig}
"""What `node_config` may hold, by provider type. Of clouds it is their own business, and checked by their providers."""

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
    notes = on_premise.complete(root)
    notes += ray_yaml.translate(root)
    reader = Reader(environ, _homes())
    spec = reader.read(root, ClusterSpec)
    if isinstance(spec, ClusterSpec):
        ray_yaml.check(spec, reader)
        _check_node_configs(spec, reader)
        _check_across(spec, reader)
        on_premise.check(spec, reader)
        _check_supported(spec, reader)
    found = sorted(
        [*notes, *reader.problems, *reader.warnings], key=lambda problem: (problem.line, problem.column)
    )
    if not isinstance(spec, ClusterSpec) or any(problem.is_fatal for problem in found):
        return None, found
    return spec, found


def _homes() -> dict[str, list[Path]]:
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
    kind = NODE_CONFIGS.get(provider_type(spec))
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
    if isinstance(spec.provider, ExternalProvider) and not CLASS_PATH.fullmatch(spec.provider.class_path):
        reader.problem_at(
            ("provider", "class"),
            f"'{spec.provider.class_path}' does not name a class; write package.module:Class",
        )
    for name, node_type in spec.available_node_types.items():
        if provider_type(spec) in ("local", "ssh"):
            asked = {"spot": node_type.spot, "zones": node_type.zones, "max_price": node_type.max_price}
            for key in (key for key, value in asked.items() if value):
                reader.problem_at(
                    ("available_node_types", name, key),
                    f"machines of provider type {provider_type(spec)} do not support this key; remove it",
                )
    _check_node_dir(spec.node_dir, ("node_dir",), spec, reader)
    for name, node_type in spec.available_node_types.items():
        _check_node_dir(node_type.node_dir, ("available_node_types", name, "node_dir"), spec, reader)
    if spec.autostop is not None and not spec.autostop.down and isinstance(spec.provider, SshProvider):
        reader.problem_at(
            ("autostop",), "SSH hosts cannot be stopped, only given back: add `down: true` to it"
        )
    if provider_type(spec) == "local":
        given: dict[Path, Docker | None] = {("docker",): spec.docker} | {
            ("available_node_types", name, "docker"): kind.docker
            for name, kind in spec.available_node_types.items()
        }
        for path, docker in given.items():
            if docker is not None and (docker.image or docker.head_image or docker.worker_image):
                reader.problem_at(
                    path, "machines of provider type local are processes of this host and run no containers"
                )
    for index, name in enumerate(spec.rsync_filter):
        if not name.strip() or set(name) & set("/ *?!"):
            reader.problem_at(
                ("rsync_filter", index),
                f"{name!r} is not the name of an ignore file, such as .gitignore; patterns belong in rsync_exclude",
            )


def _check_node_dir(given: str, path: Path, spec: ClusterSpec, reader: Reader) -> None:
    if given and not given.startswith(("/", "~/")):
        reader.problem_at(path, f"'{given}' must be an absolute path, or begin with ~/")
    elif given and provider_type(spec) == "local":
        reader.problem_at(path, "a local machine keeps everything in its own folder: set provider.root")


def _check_runtime(spec: ClusterSpec, reader: Reader) -> None:
    runtime = spec.runtime
    for key, message in runtime.problems():
        reader.problem_at(("runtime", key), message)
    if provider_type(spec) == "local" and not runtime.shares_machines:
        reader.problem_at(
            ("runtime", "kind"),
            f"{runtime.name} cannot run on local machines, because its nodes on one host end each other; use another "
            "provider",
        )
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


def provider_type(spec: ClusterSpec) -> str:
    """`provider.type` of a spec."""
    tag = spec.provider.__struct_config__.tag
    assert isinstance(tag, str)
    return tag


def zones(spec: ClusterSpec, name: str) -> tuple[str, ...]:
    """Where machines of the node type `name` may be, the best place first. Empty: anywhere."""
    of_all = getattr(spec.provider, "availability_zone", "")
    return tuple(spec.available_node_types[name].zones) or tuple(
        zone.strip() for zone in of_all.split(",") if zone.strip()
    )


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
