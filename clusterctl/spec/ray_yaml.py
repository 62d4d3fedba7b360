"""What a Ray cluster YAML says in Ray's own commands, in our terms.

The launcher starts the runtime by itself. So of `head_start_ray_commands` and `worker_start_ray_commands`
only what is not Ray's command line runs (before the start), and of a `ray start` the options that mean
something here are taken.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, field

from .definition import ClusterSpec
from .reader import Reader

_SEPARATOR = re.compile(r"&&|;|\n")


@dataclass(slots=True)
class StartCommands:
    """Taken from the start commands of one role."""

    commands: list[str] = field(default_factory=list)
    control_port: int = 0
    resources: dict[str, float] = field(default_factory=dict)


def parse_start(commands: list[str]) -> StartCommands:
    """Reads start commands.

    Raises:
        ValueError: an option of `ray start` has an unusable value.
    """
    out = StartCommands()
    for command in commands:
        kept: list[str] = []
        for part in (piece.strip() for piece in _SEPARATOR.split(command)):
            words = shlex.split(part)
            if words[:2] == ["ray", "start"]:
                _options(words[2:], out)
            elif words[:1] != ["ray"] and part:
                kept.append(part)
        if any(not part.startswith("ulimit ") for part in kept):
            out.commands.append(" && ".join(kept))
    return out


def _options(words: list[str], out: StartCommands) -> None:
    values: dict[str, str] = {}
    index = 0
    while index < len(words):
        name, equals, value = words[index].partition("=")
        following = words[index + 1] if index + 1 < len(words) else "--"
        if not equals and not following.startswith("--"):
            value = following
            index += 1
        values[name] = value
        index += 1
    try:
        if values.get("--port"):
            out.control_port = int(values["--port"])
        for option, resource in (
            ("--num-cpus", "CPU"),
            ("--num-gpus", "GPU"),
            ("--memory", "memory"),
            ("--object-store-memory", "object_store_memory"),
        ):
            if option in values:
                out.resources[resource] = float(values[option])
        if "--resources" in values:
            out.resources.update({str(k): float(v) for k, v in json.loads(values["--resources"]).items()})
    except (ValueError, AttributeError) as error:
        raise ValueError(f"ray start: {error}") from error


def check(spec: ClusterSpec, reader: Reader) -> None:
    """Reports start commands that cannot be understood."""
    for key, commands in (
        ("head_start_ray_commands", spec.head_start_ray_commands),
        ("worker_start_ray_commands", spec.worker_start_ray_commands),
    ):
        for index, command in enumerate(commands):
            try:
                parse_start([command])
            except ValueError as error:
                reader.problem_at((key, index), str(error))
