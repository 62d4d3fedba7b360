"""The runtime in two archives, for machines that have nothing but Python: our packages and what they need, as they are
installed here, already compiled. Neither side needs the internet, pip or `venv`.

An archive is named by the digest of what is in it, so that a machine that has it already gets nothing. The head keeps
both beside its runtime, and ships the one on to its workers.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib
import importlib.metadata
import os
import py_compile
import re
import shlex
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_PACKAGES = ("autoscaler", "clusterctl", "runtime")
_DISTRIBUTION = "clusterctl"
_PARTS = ("runtime", "head")
"""What every node needs, and what a head needs besides: the rest of what we require, and the extras of its provider."""
_ON_NODES = ("cloudpickle", "msgspec", "psutil", "pyyaml")
"""What the engine imports."""
_LIBYAML = "yaml/_yaml."
"""Two megabytes that make reading YAML quicker, which a worker hardly ever does."""
_OURS_ON_NODES = (
    "runtime/",
    "clusterctl/__init__.py",
    "clusterctl/errors.py",
    "clusterctl/processes.py",
    "clusterctl/head/__init__.py",
    "clusterctl/head/join.py",
    "clusterctl/head/record.py",
    "clusterctl/head/session.py",
    "clusterctl/head/worker.py",
    "clusterctl/jobs/",
)
"""What of ours runs on a worker: the engine, its start, and programs of jobs. Each file more is one to unpack."""
_BOTOCORE = "botocore/data/"
_BOTOCORE_SERVICES = ("ec2", "iam", "pricing", "service-quotas", "ssm", "sts")
"""Of four hundred services, those that a head may ask: the rest is a hundred megabytes."""
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[([^\]]*)\])?[^;]*(?:;(.*))?")
_EXTRA_MARKER = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")
_DIGEST = "digest"
_KEEP = 3
SITE = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
_COMMAND = '#!/bin/sh\nexec "$(dirname "$0")/python" -m clusterctl "$@"\n'


@dataclass(frozen=True, slots=True)
class Archive:
    """One part of a runtime."""

    name: str
    digest: str
    file: str

    @property
    def packed(self) -> str:
        """What it is called in a node's folder."""
        return f"{self.name}.tar.gz"


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

    def install(self, folder: str, python: str) -> str:
        """Command: makes `folder`/runtime, a virtual environment, of the archives in `folder`, for a Python's path.

        It is made by hand, for Debian's Python has no `ensurepip`, and a minimal one not even `venv`.
        """
        new = "runtime.new"
        return " && ".join(
            (
                f"cd {folder} && rm -rf {new} runtime",
                f"mkdir -p {new}/bin {new}/{SITE}",
                *self._unpack(new),
                f"ln -s {shlex.quote(python)} {new}/bin/python && ln -s python {new}/bin/python3",
                f"printf 'home = %s\\n' {shlex.quote(os.path.dirname(python))} > {new}/pyvenv.cfg",
                *self._command(new),
                f"echo {self.digest} > {new}/{_DIGEST} && mv {new} runtime",
            )
        )

    def _command(self, new: str) -> Iterator[str]:
        if len(self.archives) > 1:  # a worker has no command line
            yield f"printf %s {shlex.quote(_COMMAND)} > {new}/bin/clusterctl && chmod 755 {new}/bin/clusterctl"

    def _unpack(self, new: str) -> Iterator[str]:
        """A head keeps the archives, to ship them on."""
        is_head = len(self.archives) > 1
        for part in self.archives:
            unpacked = f"mv {part.packed} {new}/" if is_head else f"rm {part.packed}"
            yield f"tar -xzf {part.packed} -C {new}/{SITE} && {unpacked}"


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
    everything = dict((*_own_files(), *_files_of(needed)))
    theirs = dict(_files_of({key: found for key, found in needed.items() if key in _ON_NODES}))
    on_nodes = {
        name: file
        for name, file in everything.items()
        if name.startswith(_OURS_ON_NODES) or (name in theirs and not name.startswith(_LIBYAML))
    }
    parts = (on_nodes, {name: file for name, file in everything.items() if name not in on_nodes})
    return Shipment(
        tuple(
            _archive(name, dict(sorted(files.items())), Path(cache))
            for name, files in zip(_PARTS, parts, strict=True)
        )
    )


def _archive(name: str, files: dict[str, Path], cache: Path) -> Archive:
    digest = _digest(files)
    path = cache / f"{name}-{digest}.tar.gz"
    if not path.exists():
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in cache.glob(".*.tar.gz.*"):
            if not os.path.exists(f"/proc/{left.name.rpartition('.')[2]}"):  # whoever built it was killed
                left.unlink(missing_ok=True)
        draft = cache / f".{path.name}.{os.getpid()}"
        try:
            _build(files, draft)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
        for old in sorted(cache.glob(f"{name}-*.tar.gz"), key=os.path.getmtime)[:-_KEEP]:
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
    return not name.endswith((".pyc", ".pyi")) and name != "RECORD"


def _asked(path: str) -> bool:
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


def _digest(files: dict[str, Path]) -> str:
    total = hashlib.sha256(f"{sysconfig.get_config_var('SOABI')}".encode())
    for name, file in files.items():
        total.update(f"{name}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\0".encode())
    return total.hexdigest()[:24]


def _build(files: dict[str, Path], target: Path) -> None:
    with (
        tempfile.TemporaryDirectory() as scratch,
        open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out,
        gzip.GzipFile(fileobj=out, mode="wb", compresslevel=3, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", dereference=True) as tar,
    ):
        for name, file in files.items():
            tar.add(file, name, recursive=False, filter=_anonymous)
            if not name.endswith(".py"):
                continue
            compiled = py_compile.compile(
                str(file),
                os.path.join(scratch, "compiled"),
                name,
                doraise=False,
                quiet=2,
                invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
            )
            if compiled:
                folder, base = os.path.split(name)
                cached = f"{base[:-3]}.{sys.implementation.cache_tag}.pyc"
                inside = os.path.join(folder, "__pycache__", cached)
                tar.add(compiled, inside, recursive=False, filter=_anonymous)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Whoever unpacks it owns it, and may read it; when it was made here says nothing there."""
    mode = 0o755 if member.mode & 0o100 else 0o644
    return member.replace(mtime=0, mode=mode, uid=0, gid=0, uname="", gname="", deep=False)
