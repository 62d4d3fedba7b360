"""What the start commands of a Ray cluster YAML say, in our terms.

Our launcher starts the engine by itself. So of `head_start_ray_commands` and `worker_start_ray_commands` the parts that
are not Ray's command line run, before the start, and `OPTIONS` says what becomes of each option of `ray start`. Pure.
"""

from __future__ import annotations

import difflib
import json
import math
import os
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

_OF_THE_SHELL = re.compile(r"[$`]")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


@dataclass(slots=True)
class StartCommands:
    """Taken from the start commands of one role.

    Attributes:
        commands: what runs before the start.
        unused: what was said and is not done, each with its reason.
        unknown: the options whose value only the node's shell knows.
    """

    commands: list[str] = field(default_factory=list)
    control_port: int = 0
    api_port: int = 0
    resources: dict[str, float] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Option:
    """What becomes of one option of `ray start`.

    Attributes:
        take: puts its value where it belongs. None: the option is not taken.
        reason: why it is not taken; "" when nothing is missed.
        is_flag: it has no value.
    """

    take: Callable[[StartCommands, str], None] | None = None
    reason: str = ""
    is_flag: bool = False


def _port(value: str) -> int:
    port = int(value) if value.isascii() and value.isdigit() else -1
    if not 0 <= port < 2**16:
        raise ValueError(f"'{value}' is no port")
    return port


def _control_port(out: StartCommands, value: str) -> None:
    out.control_port = _port(value)


def _api_port(out: StartCommands, value: str) -> None:
    out.api_port = _port(value)


def _number(value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if not 0 <= number < math.inf:
        raise ValueError(f"'{value}' is no number from 0 upwards")
    return number


def _amount(resource: str) -> Callable[[StartCommands, str], None]:
    def take(out: StartCommands, value: str) -> None:
        out.resources[resource] = _number(value)

    return take


def _resources(out: StartCommands, value: str) -> None:
    try:
        given: Any = json.loads(value)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise ValueError(f'{value} is no JSON mapping, such as {{"special": 2}} in quotes of the shell')
    out.resources.update({name: _number(amount) for name, amount in given.items()})


def _labels(out: StartCommands, value: str) -> None:
    for pair in filter(None, (text.strip() for text in value.split(","))):
        name, equals, label = pair.partition("=")
        if not equals:
            raise ValueError(f"'{pair}' is no name=value")
        out.labels[name] = label


_PORTS = "nodes listen at any free port: the cluster's machines must reach each other at all of them"
_FOLDERS = "each node keeps its files in a session folder of its own"
_LAUNCHER = "the launcher sees to it"
_ISOLATION = "memory and CPU of the daemons are not reserved"

OPTIONS: Mapping[str, Option] = {
    "--port": Option(_control_port),
    "--dashboard-port": Option(_api_port),
    "--num-cpus": Option(_amount("CPU")),
    "--num-gpus": Option(_amount("GPU")),
    "--memory": Option(_amount("memory")),
    "--object-store-memory": Option(_amount("object_store_memory")),
    "--resources": Option(_resources),
    "--labels": Option(_labels),
    # What the launcher does without being told, or what has no counterpart that anybody would miss.
    "--head": Option(is_flag=True),
    "--address": Option(),
    "--autoscaling-config": Option(),
    "--block": Option(is_flag=True),
    "--disable-usage-stats": Option(is_flag=True),
    "--enable-object-reconstruction": Option(is_flag=True),
    "--include-log-monitor": Option(),
    "--log-color": Option(),
    "--log-style": Option(),
    "--no-monitor": Option(is_flag=True),
    "--no-redirect-output": Option(is_flag=True),
    "--verbose": Option(is_flag=True),
    "-v": Option(is_flag=True),
    "-vv": Option(is_flag=True),
    # What is missed: the reader of the spec is told.
    "--cgroup-path": Option(reason=_ISOLATION),
    "--dashboard-agent-grpc-port": Option(reason=_PORTS),
    "--dashboard-agent-listen-port": Option(reason=_PORTS),
    "--dashboard-host": Option(
        reason="the head's API listens on the machine's loopback only; `clusterctl` reaches it through SSH"
    ),
    "--enable-resource-isolation": Option(reason=_ISOLATION, is_flag=True),
    "--include-dashboard": Option(reason="the head's API is always there"),
    "--labels-file": Option(reason="write the labels into the node type's `labels`"),
    "--max-worker-port": Option(reason=_PORTS),
    "--metrics-export-port": Option(reason=_PORTS),
    "--min-worker-port": Option(reason=_PORTS),
    "--node-ip-address": Option(reason="a node is known by the address at which the launcher reaches it"),
    "--node-manager-port": Option(reason=_PORTS),
    "--node-name": Option(reason="a node is named by its machine"),
    "--object-manager-port": Option(reason=_PORTS),
    "--object-spilling-directory": Option(reason=_FOLDERS),
    "--plasma-directory": Option(reason="the object store is shared memory of the system"),
    "--proxy-server-url": Option(reason="there is no such proxy"),
    "--ray-client-server-port": Option(reason="there is no Ray client server: programs run on the head"),
    "--ray-debugger-external": Option(reason="there is no such debugger", is_flag=True),
    "--redis-password": Option(reason="there is no Redis: every cluster has a secret of its own"),
    "--redis-shard-ports": Option(reason="there is no Redis: the control store keeps its state in a file"),
    "--redis-username": Option(reason="there is no Redis: every cluster has a secret of its own"),
    "--runtime-env-agent-port": Option(reason=_PORTS),
    "--system-config": Option(reason="these are settings of Ray's own daemons"),
    "--system-reserved-cpu": Option(reason=_ISOLATION),
    "--system-reserved-memory": Option(reason=_ISOLATION),
    "--temp-dir": Option(reason=_FOLDERS),
    "--tracing-startup-hook": Option(reason="there is no such hook"),
    "--worker-port-list": Option(reason=_PORTS),
}
"""Every option of Ray 2.60's `ray start`."""


def parse_start(commands: list[str]) -> StartCommands:
    """Reads start commands.

    Raises:
        ValueError: a command is no shell command, or an option of `ray start` is unknown or has an unusable value.
    """
    out = StartCommands()
    for command in commands:
        kept: list[str] = []
        for part in split(command):
            words = shlex.split(part)
            settings = []
            while words and _ASSIGNMENT.match(words[0]):
                settings.append(words.pop(0).partition("=")[0])
            if not words or os.path.basename(words[0]) != "ray":
                kept.append(part)
            elif words[1:2] == ["start"]:
                _options(words[2:], out)
                out.unused += [f"{name} (a setting of Ray's own daemons)" for name in settings]
            elif words[1:2] != ["stop"]:
                out.unused.append(f"`{part}` (Ray's command line is not there)")
        if any(not part.startswith("ulimit ") for part in kept):
            out.commands.append(" && ".join(kept))
    return out


def split(command: str) -> list[str]:
    """The commands of a shell line: at each `;`, `&&` and line end that is in no quotes."""
    parts, part, quote, index = [], "", "", 0
    command = command.replace("\\\n", " ")
    while index < len(command):
        sign = command[index]
        if sign == "\\" and quote != "'":
            part += command[index : index + 2]
            index += 2
            continue
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        elif sign in ";\n" or command.startswith("&&", index):
            parts.append(part)
            part = ""
            index += 1 if sign in ";\n" else 2
            continue
        part += sign
        index += 1
    return [text for text in (piece.strip() for piece in [*parts, part]) if text]


def _options(words: list[str], out: StartCommands) -> None:
    index = 0
    while index < len(words):
        name, equals, value = words[index].partition("=")
        index += 1
        if name in ("|", "||", "&", ">", ">>", "2>&1") or not name.startswith("-"):
            return  # what follows is the shell's
        option = OPTIONS.get(name)
        if option is None:
            close = difflib.get_close_matches(name, OPTIONS, n=1)
            advice = f"; did you mean {close[0]}?" if close else ""
            raise ValueError(f"ray start has no option {name}{advice}")
        if not equals and not option.is_flag:
            if index == len(words):
                raise ValueError(f"ray start: {name} has no value")
            value = words[index]
            index += 1
        if option.take is not None and _OF_THE_SHELL.search(value):
            out.unknown.append(name)
        elif option.take is not None:
            try:
                option.take(out, value)
            except ValueError as error:
                raise ValueError(f"ray start: {name}: {error}") from error
        elif option.reason:
            out.unused.append(f"{name} ({option.reason})")
