"""Virtual environments for the fields pip and uv.

Everything that the node's own Python can import stays importable in them, this library above all; what is installed
comes first. Workers then run in the virtual environment's Python.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import json
import os
import shutil
import site
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from runtime._system import location

from .command import run

_PIP_OPTIONS = ("--disable-pip-version-check", "--no-cache-dir")
_WORKING_DIR = "RAY_RUNTIME_ENV_CREATE_WORKING_DIR"


class VenvSpec(msgspec.Struct, frozen=True):
    """What to install. `tool` is "pip" or "uv", `config` that field of the environment."""

    tool: str
    config: Mapping[str, Any]
    working_dir: str

    @property
    def digest(self) -> str:
        """Equal for virtual environments that are interchangeable."""
        needs_folder = any(_WORKING_DIR in package for package in self.config["packages"])
        identity = [self.tool, self.config, sys.executable, self.working_dir if needs_folder else ""]
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()


def python_of(folder: Path) -> str:
    """The Python of a virtual environment."""
    return str(folder / "bin" / "python")


async def build(spec: VenvSpec, folder: Path, variables: Mapping[str, str]) -> None:
    """Makes the virtual environment in `folder`. When it fails, or is cancelled, the caller removes what is there.

    Args:
        variables: further environment variables for the installer.

    Raises:
        CommandFailed: a program failed; the message holds its last lines.
    """
    await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
    environment = {**os.environ, **variables, _WORKING_DIR: spec.working_dir}
    cwd = spec.working_dir or str(folder.parent)
    inherits_pip = importlib.util.find_spec("pip") is not None
    brings_pip = not inherits_pip and location.has_pip_wheel()
    await run(
        [
            sys.executable,
            "-m",
            "venv",
            *(["--without-pip"] if inherits_pip or brings_pip else []),
            str(folder),
        ],
        str(folder.parent),
        environment,
    )
    _inherit_packages(folder)
    if brings_pip:
        await asyncio.to_thread(_unpack_wheel, location.PIP_WHEEL, folder)
    requirements = folder / "requirements.txt"
    requirements.write_text("\n".join(spec.config["packages"]) + "\n")
    python = python_of(folder)
    pip = [python, "-m", "pip"]
    if spec.tool == "pip":
        options = spec.config.get("pip_install_options") or _PIP_OPTIONS
        if spec.config.get("pip_version"):
            await run([*pip, "install", *_PIP_OPTIONS, f"pip{spec.config['pip_version']}"], cwd, environment)
        await run([*pip, "install", *options, "-r", str(requirements)], cwd, environment)
        if spec.config.get("pip_check"):
            await run([*pip, "check"], cwd, environment)
        return
    uv = shutil.which("uv")
    if uv is None or spec.config.get("uv_version"):
        await run(
            [*pip, "install", *_PIP_OPTIONS, f"uv{spec.config.get('uv_version', '')}"], cwd, environment
        )
        uv = str(folder / "bin" / "uv")
    options = spec.config.get("uv_pip_install_options") or ("--no-cache",)
    await run([uv, "pip", "install", "--python", python, *options, "-r", str(requirements)], cwd, environment)
    if spec.config.get("uv_check"):
        await run([uv, "pip", "check", "--python", python], cwd, environment)


def _inherit_packages(folder: Path) -> None:
    """Makes the packages of this process's Python importable, after those of the virtual environment."""
    found = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    lines = [f"import site; site.addsitedir({path!r})" for path in found if os.path.isdir(path)]
    (_packages_of(folder) / "_inherited.pth").write_text("\n".join(lines) + "\n")


def _unpack_wheel(wheel: str, folder: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(_packages_of(folder))


def _packages_of(folder: Path) -> Path:
    [packages] = (folder / "lib").glob("python*/site-packages")
    return packages
