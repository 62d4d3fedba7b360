"""Where a job's workers run: working directory, import path and environment variables, from its
configuration.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import shutil
import zipfile
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from runtime._clients.control import ControlClient
from runtime._transport.channel import CallError
from runtime._wire.messages.base import ErrorKind
from runtime._wire.messages.control import KvGet

_SCHEME = "kv://"
_FETCH_TIMEOUT_S = 120.0
_KNOWN_KEYS = frozenset({"env_vars", "working_dir_uri"})


@dataclass(frozen=True, slots=True)
class WorkerPlace:
    """What a forked worker is given before its first line runs."""

    cwd: str = ""
    path: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)


async def prepare_place(
    config: dict[str, Any], runtime_env: str, session_dir: str, control: ControlClient
) -> WorkerPlace:
    """Fetches and unpacks the working directory of the job, or of the environment if that names its own.

    Args:
        config: the job's configuration (`control.AddJob.config`).
        runtime_env: JSON of a task's or actor's own environment, "" for none.
        session_dir: where to unpack.
        control: where packages are.

    Raises:
        CallError: RUNTIME_ENV, saying what is missing, broken or unknown.
    """
    own = _parse(runtime_env)
    env = {**_variables(config), **_variables(own)}
    path = _existing(config.get("sys_path") or [])
    uri = str(own.get("working_dir_uri") or config.get("working_dir_uri") or "")
    if not uri:
        cwd = _existing([config.get("cwd") or ""])
        return WorkerPlace(cwd[0] if cwd else "", path, env)
    folder = await _fetch(uri, session_dir, control)
    return WorkerPlace(folder, [folder, *path], env)


def _existing(folders: list[str]) -> list[str]:
    """Those that are directories of this host."""
    return [folder for folder in map(str, folders) if os.path.isdir(folder)]


def _parse(runtime_env: str) -> dict[str, Any]:
    if not runtime_env:
        return {}
    parsed = json.loads(runtime_env)
    unknown = sorted(set(parsed) - _KNOWN_KEYS)
    if unknown:
        raise CallError(
            ErrorKind.RUNTIME_ENV,
            f"runtime_env does not know {', '.join(unknown)}; it knows {', '.join(sorted(_KNOWN_KEYS))}",
        )
    return dict(parsed)


def _variables(config: dict[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in (config.get("env_vars") or {}).items()}


async def _fetch(uri: str, session_dir: str, control: ControlClient) -> str:
    namespace, _, key = uri.removeprefix(_SCHEME).partition("/")
    digest, _, suffix = key.partition(".")
    if not uri.startswith(_SCHEME) or suffix != "zip" or len(digest) != 64:
        raise CallError(
            ErrorKind.RUNTIME_ENV, f"{uri} is no package of this cluster (kv://packages/<sha256>.zip)"
        )
    folder = Path(session_dir, "working_dirs", digest)
    if _existing([str(folder)]):
        return str(folder)
    try:
        reply = await control.call(KvGet(namespace, key.encode()), timeout_s=_FETCH_TIMEOUT_S)
    except CallError as error:
        raise CallError(ErrorKind.RUNTIME_ENV, f"cannot fetch {uri}: {error}") from error
    if reply.value is None:
        raise CallError(
            ErrorKind.RUNTIME_ENV, f"the control store has no package {uri}: submit the job again"
        )
    try:
        await asyncio.to_thread(unpack, reply.value, digest, folder)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise CallError(ErrorKind.RUNTIME_ENV, f"cannot unpack {uri}: {error}") from error
    return str(folder)


def unpack(package: bytes, digest: str, folder: Path) -> None:
    """Unpacks a zip file into `folder`, whole or not at all.

    Raises:
        ValueError: the bytes are not what the digest says, or a member would land outside.
        zipfile.BadZipFile: it is no zip file.
        OSError: the disk refuses.
    """
    if hashlib.sha256(package).hexdigest() != digest:
        raise ValueError("its content does not match its name")
    draft = folder.with_name(f"{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True, mode=0o700)
    try:
        with zipfile.ZipFile(io.BytesIO(package)) as archive:
            for member in archive.infolist():
                name = PurePosixPath(member.filename)
                if name.is_absolute() or ".." in name.parts:
                    raise ValueError(f"the member {member.filename!r} would land outside")
                target = archive.extract(member, draft)
                mode = member.external_attr >> 16
                if mode & 0o111 and not member.is_dir():
                    os.chmod(target, 0o700)
        if not folder.is_dir():
            draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
