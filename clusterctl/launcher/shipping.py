"""Brings the runtime (`artefacts.packing`) to a machine, and makes an ordinary virtual environment of it there. The
head keeps the archives beside its runtime, and ships the first one on to its workers."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from clusterctl.artefacts import packing
from clusterctl.artefacts.packing import Archive
from clusterctl.artefacts.target import Target, Unsupported, own_abi
from clusterctl.providers import registry
from clusterctl.shell import archive

_DIGEST = "digest"
_FOLDER = "runtime"
"""In a node's folder."""
_COMMAND = '#!/bin/sh\nexec "$(dirname "$0")/python" -m clusterctl "$@"\n'


@dataclass(frozen=True, slots=True)
class Shipment:
    """A runtime that can be shipped. `version`: of its Python, e.g. "3.12"."""

    archives: tuple[Archive, ...]
    version: str

    @property
    def digest(self) -> str:
        return "-".join(archive.digest for archive in self.archives)

    def for_worker(self) -> Shipment:
        """Without what only a head needs."""
        return Shipment(self.archives[:1], self.version)

    @property
    def _is_heads(self) -> bool:
        return len(self.archives) > 1

    def contents(self) -> tuple[archive.File, ...]:
        """What travels."""
        return tuple(archive.File(_kept(part), part.file) for part in self.archives)

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
                *(f"ln -sf python {runtime}/bin/{name}" for name in ("python3", f"python{self.version}")),
                f"ln -sfn lib {runtime}/lib64",
                f"printf 'home = %s\\ninclude-system-site-packages = false\\n' \"$(dirname {python})\" "
                f"> {runtime}/pyvenv.cfg",
                f"echo {self.digest} > {runtime}/{_DIGEST}",
            )
        )

    def _unpack(self, folder: str) -> Iterator[str]:
        for part in self.archives:
            yield f"tar -xzf {folder}/{_kept(part)} -C {folder}/{_FOLDER}"
            if not self._is_heads:
                yield f"rm {folder}/{_kept(part)}"
        if self._is_heads:
            command = f"{folder}/{_FOLDER}/bin/clusterctl"
            yield f"mkdir -p {folder}/{_FOLDER}/bin"
            yield f"printf %s {shlex.quote(_COMMAND)} > {command} && chmod 755 {command}"


def shipped() -> Shipment | None:
    """The runtime that this process runs on, if it came here as one; that is so on machines of clusters."""
    folder = Path(sys.prefix)
    if not (folder / _DIGEST).exists():
        return None
    digests = (folder / _DIGEST).read_text(encoding="ascii").strip().split("-")
    parts = zip(packing.PARTS, digests, strict=False)
    return Shipment(
        tuple(Archive(name, digest, str(folder / f"{name}.tar.gz")) for name, digest in parts),
        "{}.{}".format(*sys.version_info),
    )


def for_worker(target: Target) -> Shipment:
    """What the head ships on.

    Raises:
        Unsupported: the worker is not of the head's kind.
    """
    own = shipped()
    if own is None or not target.is_here:
        raise Unsupported(
            f"it has {target}, and the head's runtime is for {own_abi()}: all nodes of a cluster have the head's "
            "Python and kind of CPU"
        )
    return own.for_worker()


def packed(target: Target, cache: str, extras: Collection[str] = ()) -> Shipment:
    """The runtime for a target, kept in `cache`. `extras`: see `packing.pack`.

    Raises:
        NoRuntime: it is not to be had from the package index.
    """
    own = shipped()
    if own is not None and target.is_here:
        return own
    return Shipment(packing.pack(target, Path(cache), extras, registry.ships), target.version)


def _kept(part: Archive) -> str:
    """Where an archive is in a node's folder; a head keeps it there."""
    return f"{_FOLDER}/{part.name}.tar.gz"
