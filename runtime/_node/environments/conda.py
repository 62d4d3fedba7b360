"""Conda environments: those that exist on the node by name, and those that a description asks for.

The node's conda, mamba or micromamba makes them, or else the package py-rattler (`pip install clusterctl[conda]`).
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import json
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from runtime._node.zygote_spawn import daemon_environment
from runtime._system import files, settings

from .command import CommandFailed, run

_PYTHON = ".".join(map(str, sys.version_info[:2]))
_NAMED_BY = ("CONDA_EXE", "MAMBA_EXE")
_TOOLS = ("micromamba", "mamba", "conda")
_ROOTS = ("miniforge3", "mambaforge", "miniconda3", "anaconda3", "micromamba", ".local/share/mamba")
_ACTIVATE = """\
for file in "$CONDA_PREFIX"/etc/conda/activate.d/*.sh; do [ ! -r "$file" ] || . "$file"; done; exec "$@"
"""
_YES = {"CONDA_ALWAYS_YES": "true", "MAMBA_ALWAYS_YES": "true", "MAMBA_NO_BANNER": "1"}


class CondaSpec(msgspec.Struct, frozen=True):
    """What to make: the content of an environment.yml, and where its requirement files are."""

    description: Mapping[str, Any]
    working_dir: str = ""

    @property
    def digest(self) -> str:
        """Equal for environments that are interchangeable."""
        identity = [self.description, _PYTHON, self.working_dir if self.pip else ""]
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()

    @property
    def specs(self) -> list[str]:
        """The conda packages. Python is of the node's version unless the description says otherwise."""
        given = [spec for spec in self._dependencies if isinstance(spec, str)]
        has_python = any(
            re.split(r"[ =<>!~\[]", spec.rpartition("::")[2], maxsplit=1)[0] == "python" for spec in given
        )
        return given if has_python else [f"python={_PYTHON}", *given]

    @property
    def pip(self) -> list[str]:
        """What pip installs afterwards."""
        return [
            line for entry in self._dependencies if isinstance(entry, dict) for line in entry.get("pip") or ()
        ]

    @property
    def channels(self) -> list[str]:
        """Where conda packages come from."""
        return list(self.description.get("channels") or [])

    @property
    def _dependencies(self) -> list[Any]:
        dependencies = self.description.get("dependencies") or []
        if not isinstance(dependencies, list):
            raise ValueError(f"runtime_env['conda']['dependencies'] is a list, not {dependencies!r}")
        return dependencies


def surroundings() -> dict[str, str]:
    """The environment of conda and its like: the agent's."""
    return dict(os.environ)


def executable() -> str | None:
    """The node's conda, mamba or micromamba."""
    home = settings.CONDA_HOME.get()
    named = [os.path.join(home, "bin", "conda")] if home else []
    outer = surroundings()
    named += [outer[name] for name in _NAMED_BY if outer.get(name)]
    found = (shutil.which(tool) for tool in (*named, *_TOOLS))
    return next((tool for tool in found if tool), None)


def create_command(tool: str, prefix: str, file: str) -> list[str]:
    """The command that makes an environment from a description in a file."""
    verb = ["create"] if os.path.basename(tool).startswith("micromamba") else ["env", "create"]
    return [tool, *verb, "--quiet", "--prefix", prefix, "--file", file]


def variables_of(prefix: str, search: str) -> dict[str, str]:
    """The environment variables of an active environment.

    Args:
        search: the PATH until now.
    """
    return {
        "CONDA_PREFIX": prefix,
        "CONDA_DEFAULT_ENV": os.path.basename(prefix),
        "CONDA_SHLVL": "1",
        "PATH": f"{os.path.join(prefix, 'bin')}{os.pathsep}{search}",
    }


def command_of(prefix: str) -> list[str]:
    """What starts the environment's Python, after its packages have set their variables."""
    return ["bash", "-c", _ACTIVATE, "bash", python_of(prefix)]


def python_of(prefix: str | Path) -> str:
    """The Python of an environment."""
    return os.path.join(prefix, "bin", "python")


async def find(name: str) -> str:
    """The folder of an environment of that name, or the folder itself.

    Raises:
        CommandFailed: the node has none.
    """
    known = [name] if os.path.isabs(name) else await _known()
    named = (
        known[:1]
        if name == "base"
        else [folder for folder in known if name in (folder, os.path.basename(folder))]
    )
    found = [folder for folder in named if os.access(python_of(folder), os.X_OK)]
    if found:
        return found[0]
    raise CommandFailed(
        f"this node has no conda environment {name!r} with a Python in it. To have one made, give its description "
        "instead of a name"
    )


async def _known() -> list[str]:
    tool = executable()
    if tool is not None:
        output = await run([tool, "env", "list", "--json"], "/", surroundings())
        try:
            listed: list[str] = json.loads(output[output.index("{") :])["envs"]
        except (ValueError, KeyError) as error:
            raise CommandFailed(f"{tool} env list --json does not list environments", output) from error
        return listed
    return await asyncio.to_thread(_in_usual_places)


def _in_usual_places() -> list[str]:
    home = Path.home()
    record = home / ".conda" / "environments.txt"
    listed = record.read_text().split("\n") if record.is_file() else []
    roots = [
        surroundings().get("MAMBA_ROOT_PREFIX"),
        settings.CONDA_HOME.get(),
        *(home / root for root in _ROOTS),
    ]
    return [
        *filter(None, listed),
        *(str(folder) for root in roots if root for folder in Path(root).glob("envs/*")),
    ]


async def build(spec: CondaSpec, folder: Path, variables: Mapping[str, str]) -> None:
    """Makes the environment in `folder`. When it fails, or is cancelled, the caller removes what is there.

    Args:
        variables: further environment variables for the installers.

    Raises:
        CommandFailed: there is nothing to make it with, or that failed.
    """
    await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
    environment = {**surroundings(), **_YES, **variables}
    cwd = spec.working_dir or str(folder.parent)
    tool = executable()
    if tool is not None:
        dependencies = [*spec.specs, *([{"pip": spec.pip}] if spec.pip else [])]
        description = {**spec.description, "dependencies": dependencies}
        description.pop("name", None)
        description.pop("prefix", None)
        file = folder.with_name(f"{folder.name}.yml")
        try:
            # JSON is YAML. Channels may have credentials, which no process list nor other user sees.
            await asyncio.to_thread(files.replace, str(file), json.dumps(description).encode())
            await run(create_command(tool, str(folder), str(file)), cwd, environment)
        finally:
            file.unlink(missing_ok=True)
        return
    if importlib.util.find_spec("rattler") is None:
        raise CommandFailed(
            "runtime_env['conda'] needs conda, mamba or micromamba in the node's PATH, or the package py-rattler "
            "(pip install 'clusterctl[conda]'); this node has none of them"
        )
    asked = json.dumps(
        {"channels": spec.channels or ["conda-forge"], "specs": spec.specs, "prefix": str(folder)}
    )
    solver = [sys.executable, "-P", "-m", "runtime._node.environments.conda_rattler"]
    await run(solver, "/", {**daemon_environment(), **variables}, asked.encode())
    if spec.pip:
        requirements = folder / "requirements.txt"
        await asyncio.to_thread(
            files.replace, str(requirements), "".join(f"{line}\n" for line in spec.pip).encode()
        )
        options = ["--disable-pip-version-check", "--no-cache-dir", "-r", str(requirements)]
        active = variables_of(str(folder), environment.get("PATH", os.defpath))
        await run([python_of(folder), "-m", "pip", "install", *options], cwd, {**environment, **active})


async def check(prefix: str) -> None:
    """Makes sure that workers can run in an environment.

    Raises:
        CommandFailed: its Python does not run, or is of another version than the node's.
    """
    program = "import sys; print('VERSION', '.'.join(map(str, sys.version_info[:2])))"
    output = await run([python_of(prefix), "-c", program], "/", surroundings())
    versions: Sequence[str] = re.findall(r"^VERSION (\S+)$", output, re.MULTILINE)
    if list(versions) != [_PYTHON]:
        raise CommandFailed(
            f"the conda environment {prefix} has Python {', '.join(versions)}, but workers need Python {_PYTHON}, as "
            f"this node has: put python={_PYTHON} among its dependencies"
        )
