"""The local files that a job's environment names, as packages to upload; the environment then names those.

Runs where the job starts.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from runtime._core import environments

from .archive import Entry, Package, manifest, pack, pack_file


@dataclass(frozen=True, slots=True)
class Upload:
    """One package. `key` is its key in the namespace `environments.PACKAGES`; `what` names it in errors."""

    key: str
    data: bytes
    what: str


def paths_of_modules(py_modules: Any) -> Any:
    """Modules replaced by where they were imported from; all else as it is.

    Raises:
        ValueError: a module has no file.
    """
    if not isinstance(py_modules, list):
        return py_modules
    return [_path_of(module) if isinstance(module, ModuleType) else module for module in py_modules]


def _path_of(module: ModuleType) -> str:
    folders = list(getattr(module, "__path__", ()))
    if folders:
        return str(folders[0])
    if not getattr(module, "__file__", None):
        raise ValueError(f"py_modules: {module!r} does not come from a file, so it cannot be uploaded.")
    return str(module.__file__)


def collect(
    env: Mapping[str, Any], pickle_function: Callable[[Any], bytes] | None = None
) -> tuple[dict[str, Any], list[Upload]]:
    """Packs what is local in a checked environment.

    Args:
        pickle_function: makes bytes of a setup hook that is a function; without it there can be none.

    Returns:
        The environment with URIs instead, and what they stand for.

    Raises:
        PackageError: a folder is too large, or cannot be read.
        ValueError: a path is neither a folder nor an archive.
    """
    result, uploads = dict(env), []
    excludes = env.get("excludes") or []

    def take(package: Package, suffix: str, what: str) -> str:
        uploads.append(Upload(environments.package_key(package.digest, suffix), package.data, what))
        return environments.package_uri(package.digest, suffix)

    working_dir = env.get("working_dir")
    if working_dir and not environments.scheme_of(working_dir):
        result["working_dir"] = take(*_pack_working_dir(working_dir, excludes), f"working_dir {working_dir}")
    if env.get("py_modules"):
        result["py_modules"] = [
            module
            if environments.scheme_of(module)
            else take(*_pack_module(module, excludes), f"py_modules {module}")
            for module in env["py_modules"]
        ]
    hook = env.get("worker_process_setup_hook")
    if callable(hook) and pickle_function is not None:
        data = pickle_function(hook)
        package = Package(hashlib.sha256(data).hexdigest(), data, 1)
        result["worker_process_setup_hook"] = take(package, ".hook", "worker_process_setup_hook")
    return result, uploads


def _pack_working_dir(path: str, excludes: Sequence[str]) -> tuple[Package, str]:
    root = os.path.abspath(os.path.expanduser(path))
    if os.path.isdir(root):
        return pack(root, manifest(root, excludes)), ".zip"
    return _pack_archive(root, path, "working_dir")


def _pack_module(path: str, excludes: Sequence[str]) -> tuple[Package, str]:
    root = os.path.abspath(os.path.expanduser(path))
    name = os.path.basename(root)
    if os.path.isdir(root):
        return pack(root, manifest(root, excludes), prefix=f"{name}/"), ".zip"
    if name.endswith(".py"):
        return pack(os.path.dirname(root), [Entry(name, os.path.getsize(root), False)]), ".zip"
    if name.endswith(".whl"):
        return pack_file(root), f"-{name}"
    return _pack_archive(root, path, "py_modules")


def _pack_archive(root: str, path: str, field: str) -> tuple[Package, str]:
    for suffix in environments.ARCHIVE_SUFFIXES:
        if root.endswith(suffix):
            return pack_file(root), suffix
    raise ValueError(
        f"{field}: {path} must be a directory or an archive ({', '.join(environments.ARCHIVE_SUFFIXES)})."
    )
