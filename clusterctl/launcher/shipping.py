"""The runtime as one archive, for machines that have nothing but Python: our packages and what they need, as they are
installed here, already compiled. Neither side needs the internet, pip or `venv`.

An archive is named by the digest of what is in it, so that a machine that has it already gets nothing. A node keeps
its own beside its runtime: from there the head ships it on to its workers.
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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PACKAGES = ("autoscaler", "clusterctl", "runtime")
_DISTRIBUTION, _EXTRA = "clusterctl", "ssh"
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[([^\]]*)\])?[^;]*(?:;(.*))?")
_EXTRA_MARKER = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")
ARCHIVE, _DIGEST = "runtime.tar.gz", "digest"
_KEEP = 3
SITE = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"


@dataclass(frozen=True, slots=True)
class Archive:
    """A runtime that can be shipped."""

    digest: str
    file: str

    def is_there(self, folder: str) -> str:
        """Command: succeeds where a node's folder has this runtime already."""
        return f'[ "$(cat {folder}/runtime/{_DIGEST} 2>/dev/null)" = {self.digest} ]'

    def install(self, folder: str, python: str) -> str:
        """Command: makes `folder`/runtime, a virtual environment, of the archive that was copied to `folder`.

        It is made by hand, for Debian's Python has no `ensurepip`, and a minimal one not even `venv`.
        """
        new = "runtime.new"
        return " && ".join(
            (
                f"cd {folder} && rm -rf {new} runtime",
                f"base=$({python} -c 'import os, sys; print(os.path.realpath(sys.executable))')",
                f"mkdir -p {new}/bin {new}/{SITE}",
                f"tar -xzf {ARCHIVE} -C {new}/{SITE}",
                f'ln -s "$base" {new}/bin/python && ln -s python {new}/bin/python3',
                f'printf \'home = %s\\n\' "$(dirname "$base")" > {new}/pyvenv.cfg',
                f"printf %s {shlex.quote(_COMMAND)} > {new}/bin/clusterctl && chmod 755 {new}/bin/clusterctl",
                f"mv {ARCHIVE} {new}/ && echo {self.digest} > {new}/{_DIGEST} && mv {new} runtime",
                "runtime/bin/python -c 'import clusterctl, msgspec, psutil, runtime'",
            )
        )


_COMMAND = '#!/bin/sh\nexec "$(dirname "$0")/python" -m clusterctl "$@"\n'


def archive(cache: str) -> Archive:
    """The runtime that this process runs on; built when it is neither in `cache` nor beside the interpreter."""
    own = Path(sys.prefix) / ARCHIVE
    if own.exists():
        return Archive((own.parent / _DIGEST).read_text(encoding="ascii").strip(), str(own))
    files = dict(sorted(_files()))
    digest = _digest(files)
    path = Path(cache) / f"runtime-{digest}.tar.gz"
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        _build(files, draft)
        draft.replace(path)
        for old in sorted(path.parent.glob("runtime-*.tar.gz"), key=os.path.getmtime)[:-_KEEP]:
            old.unlink(missing_ok=True)
    return Archive(digest, str(path))


def _files() -> Iterator[tuple[str, Path]]:
    """Path in site-packages -> file here."""
    for name in _PACKAGES:
        folder = Path(str(importlib.import_module(name).__file__)).parent
        for file in folder.rglob("*"):
            if file.is_file() and _wanted(file.name):
                yield f"{name}/{file.relative_to(folder)}", file
    for distribution in _requirements():
        for path in distribution.files or ():
            if not str(path).startswith("..") and _wanted(path.name):
                yield str(path), Path(str(distribution.locate_file(path)))


def _wanted(name: str) -> bool:
    return not name.endswith(".pyc") and name != "RECORD"


def _requirements() -> Iterator[importlib.metadata.Distribution]:
    """All that the distribution requires, by way of others too, as far as it is installed for this platform."""
    queue: list[tuple[str, frozenset[str]]] = [(_DISTRIBUTION, frozenset({_EXTRA}))]
    seen: set[str] = set()
    while queue:
        name, extras = queue.pop()
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in seen:
            continue
        seen.add(key)
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # for other platforms; what is really missing, the import at the end of the install says
        if name != _DISTRIBUTION:
            yield distribution
        for requirement in distribution.requires or ():
            match = _REQUIREMENT.match(requirement)
            assert match is not None
            wanted, its_extras, marker = match.groups()
            only_for = _EXTRA_MARKER.findall(marker or "")
            if not only_for or extras.intersection(only_for):
                queue.append((wanted, frozenset(part.strip() for part in (its_extras or "").split(","))))


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
            tar.add(file, name, recursive=False)
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
                tar.add(compiled, os.path.join(folder, "__pycache__", cached), recursive=False)
