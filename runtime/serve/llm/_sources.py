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
from concurrent.futures import Future
from typing import Any

log = logging.getLogger(__name__)

ADAPTER_FILE = "adapter_config.json"
_copied: dict[str, Future[str]] = {}  # by URL
_lock = threading.Lock()  # guards it


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
    return fetching(path, tries).result()


def fetching(path: str, tries: int = 3) -> Future[str]:
    """`fetched` without waiting. Each copy has a thread of its own: one that is stuck keeps nobody but those that wait
    for it. The next call after a failure tries again."""
    if not is_remote(path):
        there: Future[str] = Future()
        there.set_result(path)
        return there
    with _lock:
        copy = _copied.get(path)
        if copy is None or (copy.done() and copy.exception() is not None):
            copy = _copied[path] = Future()
            copy.set_running_or_notify_cancel()  # who waits no more must not cancel it for the others
            threading.Thread(
                target=_fetch, args=(path, tries, copy), name="serve-llm-copy", daemon=True
            ).start()
        return copy


def _fetch(path: str, tries: int, copy: Future[str]) -> None:
    try:
        copy.set_result(_copy(path, tries))
    except BaseException as error:
        copy.set_exception(error)


def _copy(path: str, tries: int) -> str:
    folder = os.path.join(_copies(), hashlib.sha256(path.encode()).hexdigest()[:32])
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
