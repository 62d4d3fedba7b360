"""Container images as environments: the commands for podman, and whether an image can run workers.

A container sees the node's processes, network and shared memory, so that its workers are workers like others. It brings
a Python of the node's version; this library and what it needs are mounted into it
(docs/adr/0007-workers-in-containers.md).
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from runtime._system import location

from .command import CommandFailed, run
from .place import Container

ENGINE = "/run/clusterctl"
"""Where a container sees the engine and the libraries that it needs."""
_LIBRARIES = ("cloudpickle", "msgspec", "psutil")
_FACTS = "facts.json"
_EXCLUSIVE = ("pip", "uv", "conda", "py_executable", "worker_process_setup_hook")
_PYTHON = ".".join(map(str, sys.version_info[:2]))
_PROBE = """\
import json, os, sys
variables = {n: v for n, v in os.environ.items() if not n.startswith(("RAY_", "CLUSTERCTL_"))}
print("FACTS", json.dumps(["%d.%d" % sys.version_info[:2], variables]), flush=True)
"""
_TRY = """
import runtime._process.main
"""


class Image(msgspec.Struct, frozen=True):
    """What an image has: its name for Python, and its environment variables."""

    python: str
    variables: dict[str, str]


def chosen(env: Mapping[str, Any], shared: Sequence[str]) -> Container | None:
    """The container that an environment asks for.

    Args:
        shared: folders of the node that workers need.

    Raises:
        ValueError: its description is wrong, or something else in the environment excludes containers.
    """
    if not env.get("image_uri") and not env.get("container"):
        return None
    field = "image_uri" if env.get("image_uri") else "container"
    described = {"image": env["image_uri"]} if env.get("image_uri") else env["container"]
    image = described.get("image") if isinstance(described, dict) else None
    options = described.get("run_options") or [] if isinstance(described, dict) else []
    if not isinstance(image, str) or not image:
        raise ValueError(f"runtime_env['{field}'] names no image: {env[field]!r}")
    if not isinstance(options, list) or not all(isinstance(option, str) for option in options):
        raise ValueError(f"runtime_env['container']['run_options'] is a list of strings, not {options!r}")
    others = [name for name in _EXCLUSIVE if env.get(name)]
    if others:
        raise ValueError(
            f"runtime_env['{field}'] cannot be used together with {', '.join(others)}: install into the image what is "
            "needed"
        )
    folders = [os.path.abspath(folder) for folder in shared]
    outer = [f for f in folders if not any(f != other and f.startswith(f"{other}/") for other in folders)]
    return Container(image, tuple(options), tuple(dict.fromkeys(outer)))


def run_command(
    container: Container,
    python: str,
    arguments: Sequence[str],
    variables: Mapping[str, str] | None = None,
    descriptors: int = 0,
) -> list[str]:
    """The command that runs Python in a new container, which is removed with it.

    Args:
        variables: further environment variables; of the caller's own it has those of this library.
        descriptors: number of the caller's file descriptors, from 3 on, that Python inherits.
    """
    command = ["podman", "run", "--rm", "--pull=never", "--log-driver=none"]
    command.append(f"--name=clusterctl-{os.urandom(6).hex()}")
    # The node's processes, network and memory: workers are found and killed by their ids, and meet on its sockets.
    command += ["--network=host", "--pid=host", "--ulimit=host", "--security-opt=label=disable"]
    # Rootless podman takes the host's memory only together with its message queues, which some machines do not have.
    command.append("--ipc=host" if os.path.isdir("/dev/mqueue") else "--volume=/dev/shm:/dev/shm")
    command += [f"--user={os.getuid()}:{os.getgid()}", *(["--userns=keep-id"] if os.getuid() else [])]
    command += [f"--volume={folder}:{folder}" for folder in container.folders]
    command += [f"--volume={source}:{target}:ro" for source, target in _mounts()]
    command += [f"--env={name}" for name in sorted(os.environ) if name.startswith(("RAY_", "CLUSTERCTL_"))]
    command += [f"--env={name}={value}" for name, value in (variables or {}).items()]
    if descriptors:
        command.append(f"--preserve-fds={descriptors}")
    return [*command, *container.options, f"--entrypoint={python}", container.image, *arguments]


def path_setup() -> str:
    """A script's first lines, after which this library can be imported in a container: ours comes first, as it must be
    the agent's own; the libraries come last, as the image's are the user's choice."""
    return f"import sys\nsys.path.insert(0, {f'{ENGINE}/engine'!r})\nsys.path.append({f'{ENGINE}/libraries'!r})\n"


def _mounts() -> list[tuple[str, str]]:
    """What of this library and its needs is mounted, and where."""
    mounts = [(os.path.join(location.ROOT, "runtime"), f"{ENGINE}/engine/runtime")]
    for name in _LIBRARIES:
        spec = importlib.util.find_spec(name)
        folder = next(iter(spec.submodule_search_locations or ()), "") if spec is not None else ""
        if os.path.isdir(folder):
            mounts.append((folder, f"{ENGINE}/libraries/{name}"))
    return mounts


async def look(container: Container, folder: Path) -> None:
    """Gets the image unless it is on this machine, and writes into `folder` what `found` reads.

    Raises:
        CommandFailed: it cannot run workers. The message says what is missing.
    """
    image, environment = container.image, dict(os.environ)
    if shutil.which("podman") is None:
        raise CommandFailed(f"workers in the image {image} need podman, which is not installed on this node")
    for needed in container.folders:
        await asyncio.to_thread(os.makedirs, needed, exist_ok=True)
    if not await _succeeds(["podman", "image", "exists", image]):
        try:
            await run(["podman", "pull", "--quiet", image], "/", environment)
        except CommandFailed as error:
            raise CommandFailed(
                f"the image {image} is not on this node, and podman cannot pull it", error.output
            ) from error
    found = await _python(container, environment)
    script = _PROBE + path_setup() + _TRY
    try:
        await run(run_command(container, found.python, ["-P", "-c", script]), "/", environment)
    except CommandFailed as error:
        raise CommandFailed(
            f"the image {image} cannot run workers: its {found.python} does not load this library",
            error.output,
        ) from error
    await asyncio.to_thread(_write, folder, found)


def found(folder: Path) -> Image:
    """What `look` found."""
    return msgspec.json.decode((folder / _FACTS).read_bytes(), type=Image)


def _write(folder: Path, image: Image) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _FACTS).write_bytes(msgspec.json.encode(image))


async def _python(container: Container, environment: Mapping[str, str]) -> Image:
    """The first of the image's Pythons that is of this one's version."""
    seen, last = [], ""
    for name in ("python3", f"python{_PYTHON}", "python"):
        try:
            output = await run(run_command(container, name, ["-c", _PROBE]), "/", environment)
        except CommandFailed as error:
            last = error.output
            continue
        for line in output.splitlines():
            if line.startswith("FACTS "):
                version, variables = json.loads(line.removeprefix("FACTS "))
                if version == _PYTHON:
                    return Image(name, variables)
                seen.append(f"{name} is {version}")
    reason = "; ".join(dict.fromkeys(seen)) if seen else "there is no Python that runs"
    raise CommandFailed(
        f"the image {container.image} needs Python {_PYTHON}, as this node has: {reason}",
        "" if seen else last,
    )


async def _succeeds(command: Sequence[str]) -> bool:
    try:
        await run(command, "/", os.environ)
    except CommandFailed:
        return False
    return True
