"""The runtime in two archives, for machines that have nothing but Python: our packages and what they need, as they are
installed here, already compiled. Neither side needs the internet, pip or `venv`.

What every node runs on is imported from one zip, for a file is what a set-up costs: unpacked, it is seven hundred.
Beside it are the packages with extension modules, which no zip can hold. What a head needs besides is files.

An archive is named by the digest of what is in it, so that a machine that has it already gets nothing. The head keeps
both beside its runtime, and ships the one on to its workers.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib
import importlib.metadata
import io
import marshal
import os
import py_compile
import re
import shlex
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import IO

from clusterctl.shell import archive
from runtime._packages.tar import changed

from . import bytecode

_PACKAGES = ("autoscaler", "clusterctl", "runtime")
_DISTRIBUTION = "clusterctl"
_PARTS = {"runtime": ".tar", "head": ".tar.gz"}
"""What every node needs, and what a head needs besides: the rest of what we require, and the extras of its provider."""
_ON_NODES = ("cloudpickle", "msgspec", "psutil", "pyyaml")
"""What the engine imports."""
_LIBYAML = "yaml/_yaml."
"""Two megabytes that make reading YAML quicker, which a worker hardly ever does."""
_UNUSED = ("invoke",)
"""Required by paramiko for what no head does, and imported by it wherever it is there, with a third of all."""
_OTHER_SYSTEMS = re.compile(r"psutil/_ps(aix|bsd|osx|sunos|windows)\.py")
_OURS_ON_NODES = (
    "runtime/",
    "clusterctl/__init__.py",
    "clusterctl/errors.py",
    "clusterctl/processes.py",
    "clusterctl/head/__init__.py",
    "clusterctl/head/end_request.py",
    "clusterctl/head/join.py",
    "clusterctl/head/order.py",
    "clusterctl/head/record.py",
    "clusterctl/head/session.py",
    "clusterctl/head/worker.py",
    "clusterctl/jobs/",
)
"""What of ours runs on a worker: the engine, its start, and programs of jobs. Each more makes the zip longer."""
_AT_ONCE = (
    "clusterctl/",
    *(
        f"runtime/_{part}/"
        for part in ("clients", "core", "node", "session", "store", "system", "transport", "wire")
    ),
    "runtime/__init__.py",
)
"""What a node agent imports at its start: to unpack it would cost more than that more has to travel."""
_BOTOCORE = "botocore/data/"
_BOTOCORE_SERVICES = ("ec2", "iam", "pricing", "service-quotas", "ssm", "sts")
"""Of four hundred services, those that a head may ask: the rest is a hundred megabytes."""
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[([^\]]*)\])?[^;]*(?:;(.*))?")
_EXTRA_MARKER = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")
_DIGEST = "digest"
_KEEP = 3
_FOLDER = "runtime"
"""In a node's folder."""
SITE = f"{_FOLDER}/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
_ZIP = "runtime.zip"
_INDEX = f"{_ZIP}.index"
"""See `runtime._system.location.index`."""
_PYC_HEADER = 16
_ON_PATH = "runtime.pth"
_USUAL_PYTHON = f"/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}"
"""Where distributions have it."""
_COMMAND = '#!/bin/sh\nexec "$(dirname "$0")/python" -m clusterctl "$@"\n'


@dataclass(frozen=True, slots=True)
class Archive:
    """One part of a runtime."""

    name: str
    digest: str
    file: str

    @property
    def kept(self) -> str:
        """Where a head keeps it, in a node's folder."""
        return f"{_FOLDER}/{self.name}{_PARTS[self.name]}"


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

    def contents(self) -> tuple[archive.Item, ...]:
        """What travels. A head gets its archives whole, to ship them on."""
        return (
            archive.Link(f"{_FOLDER}/bin/python3", "python"),
            archive.Link(f"{_FOLDER}/bin/python", _USUAL_PYTHON),
            *(
                archive.File(part.kept, part.file) if self._is_heads else archive.Members(part.file)
                for part in self.archives
            ),
        )

    def install(self, folder: str, python: str) -> str:
        """Command: makes `folder`/runtime of its input, `contents`: a virtual environment of a Python's path, which is
        given as a shell reads it. It is made by hand, for Debian's Python has no `ensurepip`, and a minimal one not
        even `venv`. In the usual case that takes one program.

        A runtime has its digest when it is whole; one that is whole already is not taken away from those who run on it.
        """
        runtime = f"{folder}/{_FOLDER}"
        whole = f'{{ read -r digest < {runtime}/{_DIGEST}; }} 2>/dev/null; [ "$digest" = {self.digest} ]'
        return "\n".join(
            (
                f"python={python}",
                f"digest=; {whole} || ! [ -e {runtime} ] || rm -rf {runtime} || exit 1",
                " && ".join(
                    (
                        archive.unpacking(folder),
                        *self._unpack_kept(folder),
                        f'{{ [ "$python" = {_USUAL_PYTHON} ] || ln -sf "$python" {runtime}/bin/python; }}',
                        f"printf 'home = %s\\n' \"${{python%/*}}\" > {runtime}/pyvenv.cfg",
                        f"echo {self.digest} > {runtime}/{_DIGEST}",
                    )
                ),
            )
        )

    def _unpack_kept(self, folder: str) -> Iterator[str]:
        if not self._is_heads:
            return
        for part in self.archives:
            yield f"tar -x{'z' * part.kept.endswith('.gz')}f {folder}/{part.kept} -C {folder}"
        command = f"{folder}/{_FOLDER}/bin/clusterctl"
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
                Archive(name, digest, str(shipped.with_name(f"{name}{suffix}")))
                for (name, suffix), digest in zip(_PARTS.items(), digests, strict=False)
            )
        )
    needed = _requirements(frozenset(extras))
    everything = dict((*_own_files(), *_files_of(needed)))
    theirs = dict(_files_of({key: found for key, found in needed.items() if key in _ON_NODES}))
    on_nodes = {name: file for name, file in everything.items() if _is_on_nodes(name, theirs)}
    # A package is imported from one place: a head has as files all of those of which it needs more.
    more = {_package(name) for name in everything if name not in on_nodes}
    on_heads = {name: file for name, file in everything.items() if _package(name) in more}
    return Shipment(
        tuple(
            _archive(name, dict(sorted(files.items())), Path(cache))
            for name, files in zip(_PARTS, (on_nodes, on_heads), strict=True)
        )
    )


def _is_on_nodes(name: str, theirs: Collection[str]) -> bool:
    if name not in theirs:
        return name.startswith(_OURS_ON_NODES)
    if _is_metadata(name):
        return name.endswith("/METADATA")  # which version it is
    return not name.startswith(_LIBYAML)


def _is_metadata(name: str) -> bool:
    return _package(name).endswith(".dist-info")


def _package(name: str) -> str:
    return name.partition("/")[0]


def _archive(name: str, files: dict[str, Path], cache: Path) -> Archive:
    digest = _digest(files)
    path = cache / f"{name}-{digest}{_PARTS[name]}"
    if not path.exists():
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in cache.glob(".*.tar*.*"):
            if not os.path.exists(f"/proc/{left.name.rpartition('.')[2]}"):  # whoever built it was killed
                left.unlink(missing_ok=True)
        draft = cache / f".{path.name}.{os.getpid()}"
        try:
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
                _BUILDERS[name](files, out)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
        for old in sorted(cache.glob(f"{name}-*.tar*"), key=os.path.getmtime)[:-_KEEP]:
            old.unlink(missing_ok=True)
    return Archive(name, digest, str(path))


def _own_files() -> Iterator[tuple[str, Path]]:
    """Path in site-packages -> file here."""
    for name in _PACKAGES:
        folder = Path(str(importlib.import_module(name).__file__)).parent
        for file in folder.rglob("*"):
            if file.is_file() and _wanted(file.name):
                yield f"{name}/{file.relative_to(folder)}", file


def _files_of(distributions: Mapping[str, importlib.metadata.Distribution]) -> Iterator[tuple[str, Path]]:
    for distribution in distributions.values():
        for path in distribution.files or ():
            if not str(path).startswith("..") and _wanted(path.name) and _asked(str(path)):
                yield str(path), Path(str(distribution.locate_file(path)))


def _wanted(name: str) -> bool:
    return not name.endswith((".pyc", ".pyi")) and name not in ("RECORD", "py.typed")


def _asked(path: str) -> bool:
    """False for what botocore knows of services that no head asks, and for modules of other systems."""
    if _OTHER_SYSTEMS.fullmatch(path):
        return False
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
        if key in seen or key in _UNUSED:
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


def _digest(files: dict[str, Path]) -> str:
    total = hashlib.sha256(f"{sysconfig.get_config_var('SOABI')}".encode())
    for name, file in files.items():
        total.update(f"{name}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\0".encode())
    return total.hexdigest()[:24]


def _build_runtime(files: Mapping[str, Path], out: IO[bytes]) -> None:
    """Modules are there as what they compile to, without their text."""
    unzipped = {_package(name) for name in files if name.endswith(tuple(EXTENSION_SUFFIXES))}
    unzipped |= {
        _package(name) for name in files if _is_metadata(name)
    }  # pip takes a zip with these for an old egg
    packed = io.BytesIO()
    plain = []
    index = {}
    with zipfile.ZipFile(packed, "w") as zipped:
        for name, file in files.items():
            data = file.read_bytes()
            if name.endswith(".py"):
                name, data = f"{name}c", bytecode.lean(data, name)
            if _package(name) in unzipped:
                plain.append((f"{SITE}/{name}", data))
            else:
                at_once = name.startswith(_AT_ONCE)
                member = zipfile.ZipInfo(name)
                zipped.writestr(member, data, zipfile.ZIP_STORED if at_once else zipfile.ZIP_DEFLATED)
                if at_once and name.endswith(".pyc"):
                    module = name.removesuffix(".pyc").removesuffix("/__init__").replace("/", ".")
                    begin = member.header_offset + len(member.FileHeader()) + _PYC_HEADER
                    index[module] = (begin, len(data) - _PYC_HEADER, name.endswith("/__init__.pyc"))
    made = [(_ZIP, packed.getvalue()), (_INDEX, marshal.dumps(index)), (_ON_PATH, f"{_ZIP}\n".encode())]
    archive.write([*((f"{SITE}/{name}", data) for name, data in made), *plain], out)


def _build_head(files: Mapping[str, Path], out: IO[bytes]) -> None:
    with (
        tempfile.TemporaryDirectory() as scratch,
        gzip.GzipFile(fileobj=out, mode="wb", compresslevel=3, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", dereference=True) as tar,
    ):
        for name, file in files.items():
            tar.add(file, f"{SITE}/{name}", recursive=False, filter=_anonymous)
            if compiled := _compiled(name, file, scratch):
                folder, base = os.path.split(name)
                cached = f"{base[:-3]}.{sys.implementation.cache_tag}.pyc"
                inside = os.path.join(SITE, folder, "__pycache__", cached)
                tar.add(compiled, inside, recursive=False, filter=_anonymous)


_BUILDERS = {"runtime": _build_runtime, "head": _build_head}


def _compiled(name: str, file: Path, scratch: str) -> Path | None:
    """What a module compiles to, until the next one; None where it is none, or cannot be compiled."""
    if not name.endswith(".py"):
        return None
    written = py_compile.compile(
        str(file),
        os.path.join(scratch, "compiled"),
        name,
        doraise=False,
        quiet=2,
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    return Path(written) if written else None


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Whoever unpacks it owns it, and may read it; when it was made here says nothing there."""
    mode = 0o755 if member.mode & 0o100 else 0o644
    return changed(member, mtime=0, mode=mode, uid=0, gid=0, uname="", gname="")
