"""The runtime in two archives, for machines that have nothing but Python. Neither side needs the internet or pip.

Each holds part of an ordinary virtual environment (`launcher.shipping` makes it there): in its site-packages are
distributions with their text, bytecode and metadata, as an installer would have put them there. A machine with the
Python and CPU of this one gets those that are installed here. For any other they come from the package index
(`wheels`); another Python compiles them when it first imports them. One archive has what every node needs, the other
what a head needs besides.

An archive is named by the digest of what is in it, so that a machine that has it already gets nothing.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import importlib
import importlib.metadata
import importlib.util
import io
import marshal
import os
import struct
import sys
import tarfile
import zipfile
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from .target import Target

_PACKAGES = ("autoscaler", "clusterctl", "runtime")
_DISTRIBUTION = "clusterctl"
PARTS = ("runtime", "head")
"""What every node needs: our packages and what the engine imports. What a head needs besides: the rest of what we
require, and the extras of its provider."""
_DRIVERS = "client"
_PIP = "pip"
_PIP_WHEEL = "pip.whl"
"""In a runtime's folder: see `runtime._system.location.PIP_WHEEL`. Names below it are those of files in it. Without pip
here, as where uv has installed us, machines must have it."""
_ON_NODES = ("cloudpickle", "msgspec", "psutil", "pyyaml")
"""What the engine imports."""
_METADATA = ("METADATA", "entry_points.txt", "WHEEL")
"""Of our own distribution, which may be installed from a source tree. The head's part has it, for it names all that we
require: `pip check` would miss most of that on a worker."""
_KEEP = 3
_MODIFIED = 315_532_800
"""When files in archives were modified, as bytecode is valid for a text of one time only: 1980-01-01 UTC, which zip
files know, too."""
_PYC = struct.Struct("<4sIII")
"""What bytecode begins with: magic number, flags, time and size of the text (https://peps.python.org/pep-0552)."""
_BYTECODE = "__pycache__"
_LEVEL = 1
"""Of compression: a quarter less work than level 3, for archives that are a twentieth larger."""


@dataclass(frozen=True, slots=True)
class Archive:
    """One part of a runtime."""

    name: str
    digest: str
    file: str


def pack(
    target: Target, cache: Path, extras: Collection[str], ships: Callable[[str], bool]
) -> tuple[Archive, ...]:
    """The runtime for a target, kept in `cache`.

    Args:
        extras: which of our extras the head's part has, besides the one that lets drivers elsewhere in. One that is not
            installed here adds nothing.
        ships: whether a file, by its path in site-packages, is of use on a machine.

    Raises:
        NoRuntime: it is not to be had from the package index.
    """
    from . import requirements, wheels  # the head itself needs neither

    extras = [*extras, _DRIVERS]
    site, environment, find = "", None, requirements.installed
    if not target.is_here:
        extras = [extra for extra in extras if requirements.is_installed(extra)]
        site, environment = str(wheels.fetch(target, extras, cache)), target.environment()
        find = partial(wheels.find, site)
    needed, _ = requirements.closure([requirements.ours(extras)], find, environment)
    needed.pop(_DISTRIBUTION, None)
    on_nodes = [found for name, found in needed.items() if name in _ON_NODES]
    on_heads = [found for name, found in needed.items() if name not in _ON_NODES]
    pip = requirements.in_folder(_PIP, site)
    folder = f"lib/python{target.version}/site-packages"
    contents = (
        {
            **_in(folder, {**_own_files(), **_files_of(on_nodes, ships)}),
            **_in(_PIP_WHEEL, _files_of([pip] if pip else [], ships)),
        },
        _in(folder, {**_own_metadata(), **_files_of(on_heads, ships)}),
    )
    with ThreadPoolExecutor(
        len(PARTS)
    ) as pool:  # nearly all of it is compression, which leaves the interpreter alone
        return tuple(pool.map(partial(_archive, target=target, cache=cache), PARTS, contents))


def _archive(name: str, files: Mapping[str, Path], target: Target, cache: Path) -> Archive:
    files = dict(sorted(files.items()))
    digest = _digest(files, target)
    path = cache / f"{name}-{digest}.tar.gz"
    if not path.exists():
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in cache.glob(".*.tar*.*"):
            if not os.path.exists(f"/proc/{left.name.rpartition('.')[2]}"):  # its builder was killed
                left.unlink(missing_ok=True)
        draft = cache / f".{path.name}.{os.getpid()}"
        try:
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
                _build(files, out, compiles=target.python == sys.version_info[:2])
                out.flush()
                os.fsync(out.fileno())  # its name says what is in it, also after a power failure
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):  # another process drops the oldest as well
            for old in sorted(cache.glob(f"{name}-*.tar*"), key=os.path.getmtime)[:-_KEEP]:
                old.unlink(missing_ok=True)
    return Archive(name, digest, str(path))


def _in(folder: str, files: Mapping[str, Path]) -> dict[str, Path]:
    return {f"{folder}/{name}": file for name, file in files.items()}


def _own_files() -> dict[str, Path]:
    """Path in site-packages -> file here. Without bytecode: a process that imports a module may be writing it, under a
    temporary name that is gone a moment later."""
    found = {}
    for name in _PACKAGES:
        folder = Path(str(importlib.import_module(name).__file__)).parent
        for file in folder.rglob("*"):
            path = file.relative_to(folder)
            if _BYTECODE not in path.parts and file.is_file():
                found[f"{name}/{path}"] = file
    return found


def _own_metadata() -> dict[str, Path]:
    """Path in site-packages -> file here. Empty if the packages run from a source tree and are installed nowhere."""
    for distribution in importlib.metadata.distributions(name=_DISTRIBUTION):
        folder = f"{_DISTRIBUTION}-{distribution.version}.dist-info"
        found = {
            f"{folder}/{name}": Path(str(distribution.locate_file(f"{folder}/{name}"))) for name in _METADATA
        }
        if all(file.is_file() for file in found.values()):
            return found  # and not what a build has left in a source tree
    return {}


def _files_of(
    distributions: Collection[importlib.metadata.Distribution], ships: Callable[[str], bool]
) -> dict[str, Path]:
    """Path in site-packages -> file here. Programs in `bin` are left out: they name the Python that is here."""
    return {
        str(path): Path(str(distribution.locate_file(path)))
        for distribution in distributions
        for path in distribution.files or ()
        if path.suffix != ".pyc"
        and not str(path).startswith("..")
        and not path.parts[0].endswith(".data")  # programs
        and ships(str(path))
    }


def _digest(files: Mapping[str, Path], target: Target) -> str:
    total = hashlib.sha256(target.abi.encode())
    for name, file in files.items():
        total.update(f"{name}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\0".encode())
    return total.hexdigest()[:24]


def _build(files: Mapping[str, Path], out: IO[bytes], compiles: bool) -> None:
    """Writes an archive; if it `compiles`, with the bytecode of each module beside it."""
    with (
        gzip.GzipFile(fileobj=out, mode="wb", compresslevel=_LEVEL, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar,
    ):
        wheel = {}
        for name, file in files.items():
            data = file.read_bytes()
            if name.startswith(f"{_PIP_WHEEL}/"):
                wheel[name.removeprefix(f"{_PIP_WHEEL}/")] = data
                continue
            _add(tar, name, data, 0o755 if os.access(file, os.X_OK) else 0o644)
            if compiles and name.endswith(".py") and (code := _bytecode(file, data)):
                folder, module = os.path.split(name.removesuffix(".py"))
                cached = os.path.join(folder, _BYTECODE, f"{module}.{sys.implementation.cache_tag}.pyc")
                _add(tar, cached, code, 0o644)
        if wheel:
            _add(tar, _PIP_WHEEL, _zipped(wheel), 0o644)


def _zipped(contents: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as zipped:  # the archive that it is in will be compressed
        for name, data in contents.items():
            zipped.writestr(zipfile.ZipInfo(name), data)
    return out.getvalue()


def _bytecode(file: Path, text: bytes) -> bytes:
    """What Python writes for a module in an archive: what it has written here, if that is up to date. b"" for a module
    that cannot be compiled, as some are made for other versions."""
    status = file.stat()
    size = len(text) & 0xFFFFFFFF
    current = _PYC.pack(importlib.util.MAGIC_NUMBER, 0, int(status.st_mtime) & 0xFFFFFFFF, size)
    try:
        written = Path(importlib.util.cache_from_source(str(file), optimization="")).read_bytes()
    except OSError:
        written = b""
    if written.startswith(current):
        code = written[_PYC.size :]
    else:
        try:
            code = marshal.dumps(compile(text, str(file), "exec", dont_inherit=True, optimize=0))
        except (SyntaxError, ValueError):
            return b""
    return _PYC.pack(importlib.util.MAGIC_NUMBER, 0, _MODIFIED, size) + code


def _add(tar: tarfile.TarFile, name: str, data: bytes, mode: int) -> None:
    """Adds a file that belongs to the user who unpacks it."""
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = len(data), mode, _MODIFIED
    tar.addfile(member, io.BytesIO(data))
