"""Folders of models and adapters: local ones, and copies of those in a bucket."""

from __future__ import annotations

import atexit
import functools
import hashlib
import logging
import os
import shutil
import tempfile
import threading
from typing import Any

log = logging.getLogger(__name__)

ADAPTER_FILE = "adapter_config.json"
_turn = threading.Lock()


@functools.cache
def _copies() -> str:
    """The folder of this process's copies. It is removed at the end."""
    folder = tempfile.mkdtemp(prefix="serve-llm-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def is_remote(path: str) -> bool:
    """Whether it is a URL of fsspec."""
    return "://" in path


def _opened(url: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError as error:
        raise ImportError(
            f"{url} needs the package fsspec: pip install 'clusterctl[llm]' ({error})."
        ) from error
    filesystem, path = fsspec.core.url_to_fs(url)
    return filesystem, path


def fetched(path: str, tries: int = 3) -> str:
    """The folder itself, or a local copy of a remote one, which is made once for each process.

    Raises:
        FileNotFoundError: there is no such folder in the bucket.
        OSError: it could not be copied.
    """
    if not is_remote(path):
        return path
    name = hashlib.sha256(path.encode()).hexdigest()[:32]
    with _turn:
        folder = os.path.join(_copies(), name)
        if os.path.exists(folder):
            return folder
        filesystem, inside = _opened(path)
        if not filesystem.isdir(inside):
            raise FileNotFoundError(f"There is no folder {path}.")
        for attempt in range(1, tries + 1):
            part = tempfile.mkdtemp(dir=_copies())
            try:
                filesystem.get(inside.rstrip("/") + "/", part + "/", recursive=True)
            except OSError as error:
                shutil.rmtree(part, ignore_errors=True)
                if attempt == tries:
                    raise
                log.warning("Copying %s failed, attempt %d of %d: %s", path, attempt, tries, error)
                continue
            os.rename(part, folder)
            return folder
    raise AssertionError("unreachable")


def adapter_folder(base: str, adapter: str) -> str:
    """Where an adapter is.

    Args:
        base: `dynamic_lora_loading_path`.
        adapter: its name, from a request.

    Raises:
        FileNotFoundError: the name cannot be one of a folder directly in `base`, or there is no adapter.
    """
    if adapter in ("", ".", "..") or any(char in adapter for char in "/\\\0*?["):
        raise FileNotFoundError(f"{adapter!r} is not the name of an adapter.")
    folder = f"{base.rstrip('/')}/{adapter}"
    if not _has_adapter(folder):
        raise FileNotFoundError(f"There is no adapter {adapter!r}: {folder} has no {ADAPTER_FILE}.")
    return folder


def _has_adapter(folder: str) -> bool:
    if not is_remote(folder):
        return os.path.isfile(os.path.join(folder, ADAPTER_FILE))
    filesystem, inside = _opened(folder)
    return bool(filesystem.isfile(f"{inside}/{ADAPTER_FILE}"))


def adapters_in(base: str) -> list[str]:
    """The names of all adapters in a folder, sorted; none if the folder does not exist."""
    try:
        if is_remote(base):
            filesystem, inside = _opened(base)
            names = [
                entry["name"].rstrip("/").rpartition("/")[2]
                for entry in filesystem.ls(inside, detail=True)
                if entry["type"] == "directory"
            ]
        else:
            names = [entry.name for entry in os.scandir(base) if entry.is_dir()]
    except FileNotFoundError:
        return []
    return sorted(name for name in names if _has_adapter(f"{base.rstrip('/')}/{name}"))
