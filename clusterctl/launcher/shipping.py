"""The runtime in two archives, for machines that have nothing but Python. Neither side needs the internet or pip.

A machine gets an ordinary virtual environment (`Shipment.install`). In its site-packages are the distributions that
are installed here, with their text, bytecode and metadata, as an installer would have put them there. One archive has
what every node needs, the other what a head needs besides.

An archive is named by the digest of what is in it, so that a machine that has it already gets nothing. The head keeps
both beside its runtime, and ships the first one on to its workers.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib
import importlib.metadata
import importlib.util
import io
import marshal
import os
import re
import shlex
import struct
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from clusterctl.shell import archive

_PACKAGES = ("autoscaler", "clusterctl", "runtime")
_DISTRIBUTION = "clusterctl"
_PARTS = ("runtime", "head")
"""What every node needs: our packages and what the engine imports. What a head needs besides: the rest of what we
require, and the extras of its provider."""
_PIP = "pip"
_PIP_WHEEL = "pip.whl"
"""In a runtime's folder: see `runtime._system.location.PIP_WHEEL`. Names below it are those of files in it. Without pip
here, as where uv has installed us, machines must have it."""
_ON_NODES = ("cloudpickle", "msgspec", "psutil", "pyyaml")
"""What the engine imports."""
_METADATA = ("METADATA", "entry_points.txt", "WHEEL")
"""Of our own distribution, which may be installed from a source tree. The head's part has it, for it names all that we
require: `pip check` would miss most of that on a worker."""
_BOTOCORE = "botocore/data/"
_BOTOCORE_SERVICES = ("ec2", "iam", "pricing", "service-quotas", "ssm", "sts")
"""Of four hundred services, those that a head may ask: the rest is a hundred megabytes."""
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[([^\]]*)\])?[^;]*(?:;(.*))?")
_EXTRA_MARKER = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")
_DIGEST = "digest"
_KEEP = 3
_FOLDER = "runtime"
"""In a node's folder."""
_VERSION = f"python{sys.version_info[0]}.{sys.version_info[1]}"
SITE = f"lib/{_VERSION}/site-packages"
"""In a runtime's folder."""
_COMMAND = '#!/bin/sh\nexec "$(dirname "$0")/python" -m clusterctl "$@"\n'
_MODIFIED = 315_532_800
"""When files in archives were modified, as bytecode is valid for a text of one time only: 1980-01-01 UTC, which zip
files know, too."""
_PYC = struct.Struct("<4sIII")
"""What bytecode begins with: magic number, flags, time and size of the text (https://peps.python.org/pep-0552)."""
_LEVEL = 3  # of compression


@dataclass(frozen=True, slots=True)
class Archive:
    """One part of a runtime."""

    name: str
    digest: str
    file: str

    @property
    def kept(self) -> str:
        """Where it is in a node's folder; a head keeps it there."""
        return f"{_FOLDER}/{self.name}.tar.gz"


@dataclass(frozen=True, slots=True)
class Shipment:
    """A runtime that can be shipped."""

    archives: tuple[Archive, ...]

    @property
    def digest(self) -> str:
        return "-".join(archive.digest for archive in self.archives)

    def for_worker(self) -> Shipment:
        """Without what only a head needs."""
        return Shipment(self.archives[:1])

    @property
    def _is_heads(self) -> bool:
        return len(self.archives) > 1

    def contents(self) -> tuple[archive.File, ...]:
        """What travels."""
        return tuple(archive.File(part.kept, part.file) for part in self.archives)

    def install(self, folder: str, python: str) -> str:
        """Command: makes `folder`/runtime of its input, `contents`: a virtual environment of a Python, whose path is
        given as a shell reads it. It has what `python -m venv --without-pip` would make; a minimal Python has no
        `venv`.

        A runtime has its digest when it is complete; one that is complete already is not taken away from those who run
        on it.
        """
        runtime = f"{folder}/{_FOLDER}"
        is_complete = f'[ "$(cat {runtime}/{_DIGEST} 2>/dev/null)" = {self.digest} ]'
        return " && ".join(
            (
                f"{{ {is_complete} || rm -rf {runtime}; }}",
                archive.unpacking(folder),
                *self._unpack(folder),
                f"mkdir -p {runtime}/bin",
                f"ln -sf {python} {runtime}/bin/python",
                *(f"ln -sf python {runtime}/bin/{name}" for name in ("python3", _VERSION)),
                f"ln -sfn lib {runtime}/lib64",
                f"printf 'home = %s\\ninclude-system-site-packages = false\\n' \"$(dirname {python})\" "
                f"> {runtime}/pyvenv.cfg",
                f"echo {self.digest} > {runtime}/{_DIGEST}",
            )
        )

    def _unpack(self, folder: str) -> Iterator[str]:
        for part in self.archives:
            yield f"tar -xzf {folder}/{part.kept} -C {folder}/{_FOLDER}"
            if not self._is_heads:
                yield f"rm {folder}/{part.kept}"
        if self._is_heads:
            command = f"{folder}/{_FOLDER}/bin/clusterctl"
            yield f"mkdir -p {folder}/{_FOLDER}/bin"
            yield f"printf %s {shlex.quote(_COMMAND)} > {command} && chmod 755 {command}"


def own(cache: str, extras: Collection[str] = ()) -> Shipment:
    """The runtime that this process runs on: as it came here, or as it is installed here, kept in `cache`.

    Args:
        extras: which of our extras the head's part has. One that is not installed here adds nothing.
    """
    shipped = Path(sys.prefix) / _DIGEST
    if shipped.exists():
        digests = shipped.read_text(encoding="ascii").strip().split("-")
        return Shipment(
            tuple(
                Archive(name, digest, str(shipped.with_name(f"{name}.tar.gz")))
                for name, digest in zip(_PARTS, digests, strict=False)
            )
        )
    needed = _requirements(frozenset(extras))
    on_nodes = [found for name, found in needed.items() if name in _ON_NODES]
    on_heads = [found for name, found in needed.items() if name not in _ON_NODES]
    contents = (
        {**_in(SITE, {**_own_files(), **_files_of(on_nodes)}), **_in(_PIP_WHEEL, _pip_files())},
        _in(SITE, {**_own_metadata(), **_files_of(on_heads)}),
    )
    return Shipment(
        tuple(
            _archive(name, dict(sorted(files.items())), Path(cache))
            for name, files in zip(_PARTS, contents, strict=True)
        )
    )


def _archive(name: str, files: dict[str, Path], cache: Path) -> Archive:
    digest = _digest(files)
    path = cache / f"{name}-{digest}.tar.gz"
    if not path.exists():
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in cache.glob(".*.tar*.*"):
            if not os.path.exists(f"/proc/{left.name.rpartition('.')[2]}"):  # its builder was killed
                left.unlink(missing_ok=True)
        draft = cache / f".{path.name}.{os.getpid()}"
        try:
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
                _build(files, out)
                out.flush()
                os.fsync(out.fileno())  # its name says what is in it, also after a power failure
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
        for old in sorted(cache.glob(f"{name}-*.tar*"), key=os.path.getmtime)[:-_KEEP]:
            old.unlink(missing_ok=True)
    return Archive(name, digest, str(path))


def _in(folder: str, files: Mapping[str, Path]) -> dict[str, Path]:
    return {f"{folder}/{name}": file for name, file in files.items()}


def _own_files() -> dict[str, Path]:
    """Path in site-packages -> file here."""
    found = {}
    for name in _PACKAGES:
        folder = Path(str(importlib.import_module(name).__file__)).parent
        for file in folder.rglob("*"):
            if file.suffix != ".pyc" and file.is_file():
                found[f"{name}/{file.relative_to(folder)}"] = file
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


def _pip_files() -> dict[str, Path]:
    """Path in a wheel -> file here. Empty without pip."""
    return _files_of(list(importlib.metadata.distributions(name=_PIP))[:1])


def _files_of(distributions: Collection[importlib.metadata.Distribution]) -> dict[str, Path]:
    """Path in site-packages -> file here. Programs in `bin` are left out: they name the Python that is here."""
    return {
        str(path): Path(str(distribution.locate_file(path)))
        for distribution in distributions
        for path in distribution.files or ()
        if path.suffix != ".pyc" and not str(path).startswith("..") and _is_used(str(path))
    }


def _is_used(path: str) -> bool:
    """False for what botocore knows of services that no head asks."""
    folder, found, rest = path.partition(_BOTOCORE)
    service, nested, _ = rest.partition("/")
    return not (found and not folder and nested) or service in _BOTOCORE_SERVICES


def _requirements(extras: frozenset[str]) -> dict[str, importlib.metadata.Distribution]:
    """All that our distribution requires, by way of others too, as far as it is installed for this platform."""
    queue = [(_DISTRIBUTION, extras)]
    seen: set[str] = set()
    found: dict[str, importlib.metadata.Distribution] = {}
    while queue:
        name, wanted = queue.pop()
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in seen:
            continue
        seen.add(key)
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # for other platforms; what is really missing here would be missing to us, too
        if name != _DISTRIBUTION:
            found[key] = distribution
        for requirement in distribution.requires or ():
            match = _REQUIREMENT.match(requirement)
            assert match is not None
            other, its_extras, marker = match.groups()
            only_for = _EXTRA_MARKER.findall(marker or "")
            if not only_for or wanted.intersection(only_for):
                queue.append((other, frozenset(part.strip() for part in (its_extras or "").split(","))))
    return found


def _digest(files: Mapping[str, Path]) -> str:
    total = hashlib.sha256(f"{sysconfig.get_config_var('SOABI')}".encode())
    for name, file in files.items():
        total.update(f"{name}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\0".encode())
    return total.hexdigest()[:24]


def _build(files: Mapping[str, Path], out: IO[bytes]) -> None:
    """Writes an archive, with the bytecode of each module beside it."""
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
            if name.endswith(".py") and (code := _bytecode(file, data)):
                folder, module = os.path.split(name.removesuffix(".py"))
                cached = os.path.join(folder, "__pycache__", f"{module}.{sys.implementation.cache_tag}.pyc")
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
