"""The wheels of a runtime for another Python or CPU than the one that is here, by pip and the index that it is
configured for.

What was fetched for the same requirements and target is not fetched again: its folder has `site`, where the wheels are
unpacked, and `lock.txt`, which names them with their hashes, in the form that `pip install -r` takes.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Collection, Sequence
from functools import partial
from importlib.metadata import Distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

from .requirements import DISTRIBUTION, closure, in_folder, installed, ours
from .target import NoRuntime, Target

FOLDER = "wheels"
"""In the cache."""
SITE = "site"
LOCK = "lock.txt"
_PIP = "pip"
_KEEP = 8
_ROUNDS = 5
_UNREACHABLE = re.compile(
    r"Retrying \(|Connection|ProtocolError|IncompleteRead|Timeout|timed out|ProxyError|SSLError|name resolution"
    r"|Could not fetch URL|HTTP error 5\d\d|5\d\d Server Error"
)
_NONE_FITS = re.compile(r"No matching distribution found for (.+)")


def fetch(target: Target, extras: Collection[str], cache: Path) -> Path:
    """The folder with the unpacked wheels of all that our distribution requires there, and of pip.

    Args:
        extras: of our distribution.

    Raises:
        NoRuntime: the index cannot be reached, or lacks a wheel.
    """
    wanted = [ours(extras), Requirement(_PIP)]
    _, first = closure(wanted, _own, target.environment())
    if _own(DISTRIBUTION) is None:
        raise NoRuntime(
            f"clusterctl runs from a source tree here, so what {target} needs is unknown",
            "Install clusterctl with pip.",
        )
    words = "\n".join([str(target), *sorted(map(str, first))])
    name = f"{target.abi}-{hashlib.sha256(words.encode()).hexdigest()[:16]}"
    folder = cache / FOLDER / name
    if not folder.exists():
        _make(folder, target, wanted, first)
    os.utime(folder)
    with contextlib.suppress(FileNotFoundError):  # another process drops the oldest as well
        for old in sorted(_complete(folder.parent), key=os.path.getmtime)[:-_KEEP]:
            shutil.rmtree(old, ignore_errors=True)
    return folder / SITE


def find(site: str, name: str) -> Distribution | None:
    """The distribution of that name in a folder that `fetch` has made; ours is the one that is here."""
    return _own(name) or in_folder(name, site)


def _own(name: str) -> Distribution | None:
    return installed(name) if name == DISTRIBUTION else None


def _make(folder: Path, target: Target, wanted: Sequence[Requirement], first: Sequence[Requirement]) -> None:
    """Fetches into a draft, which gets its name when it is complete."""
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for left in folder.parent.glob(".*"):
        if not os.path.exists(f"/proc/{left.name.rpartition('.')[2]}"):  # who made it was killed
            shutil.rmtree(left, ignore_errors=True)
    draft = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        site, wheels = draft / SITE, draft / FOLDER
        asked = [*first]
        # pip resolves by the markers of the Python that it runs on. What only the target's markers ask for is missing
        # then, and is asked for by name.
        for _ in range(_ROUNDS):
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(mode=0o700)
            download(target, asked, wheels)
            lock = [_unpack(wheel, target, site) for wheel in sorted(wheels.glob("*.whl"))]
            _, unmet = closure(wanted, partial(find, str(site)), target.environment())
            if not unmet:
                break
            asked += unmet
        else:
            raise NoRuntime(
                f"the requirements for {target} cannot be met: {', '.join(map(str, unmet))}",
                "Look at pip's constraints.",
            )
        shutil.rmtree(wheels)
        (draft / LOCK).write_text(f"# {target}\n" + "".join(sorted(lock)), encoding="utf-8")
        try:
            draft.rename(folder)
        except OSError:
            if not folder.exists():  # else another process has just made it
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _complete(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if not path.name.startswith(".")]


def download(target: Target, requirements: Sequence[Requirement], folder: Path) -> None:
    """Has pip resolve these and all that they require, and save the wheels. Indexes, proxies, constraints and
    certificates are those of pip's own configuration; pip checks the hashes that the index gives.

    Raises:
        NoRuntime: see `fetch`.
    """
    folder.mkdir()
    command = [
        *_pip(),
        *(
            "download",
            "--dest",
            str(folder),
            "--no-input",
            "--disable-pip-version-check",
            "--progress-bar",
            "off",
        ),
        *("--only-binary=:all:", "--python-version", target.version, "--implementation", "cp"),
        *("--abi", f"cp{target.version.replace('.', '')}"),
        *(word for platform in target.platforms() for word in ("--platform", platform)),
        *(str(requirement) for requirement in requirements),
    ]
    ran = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
    )
    if ran.returncode:
        raise _failure(target, ran.stdout)


def _pip() -> list[str]:
    if importlib.util.find_spec(_PIP) is not None:
        return [sys.executable, "-m", _PIP]
    if uv := shutil.which("uv"):  # which has no such command, and brings pip
        return [uv, "tool", "run", _PIP]
    raise NoRuntime(
        "to fetch wheels for other machines, clusterctl needs pip or uv here, and finds neither",
        "Install pip into its environment, or uv.",
    )


def _failure(target: Target, output: str) -> NoRuntime:
    errors = [line.removeprefix("ERROR: ") for line in output.splitlines() if line.startswith("ERROR: ")]
    said = "; ".join(errors) or output.strip()[-500:]
    if _UNREACHABLE.search(output):
        return NoRuntime(
            f"the package index cannot be reached to fetch the runtime for {target}: {said}",
            "Run `clusterctl check` once where it can: what it fetches is kept. Or run clusterctl with the machines' "
            "Python and on their kind of CPU, which needs no index.",
        )
    if match := _NONE_FITS.search(output):
        return NoRuntime(
            f"the package index has no wheel of {match[1].strip()} for {target}: {said}",
            "Use another Python there (provider.python), or an index that has the wheel (pip's index-url).",
        )
    return NoRuntime(f"pip could not fetch the runtime for {target}: {said}", "See pip's message.")


def _unpack(wheel: Path, target: Target, site: Path) -> str:
    """Unpacks a wheel; returns its line of the lock.

    Raises:
        NoRuntime: it is none, or not for this target.
    """
    try:
        name, version, _, tags = parse_wheel_filename(wheel.name)
        if not tags & supported(target):
            raise NoRuntime(f"{wheel.name} is not for {target}", "Look at the package index that pip uses.")
        with zipfile.ZipFile(wheel) as packed:
            if any(".data/purelib/" in entry or ".data/platlib/" in entry for entry in packed.namelist()):
                raise NoRuntime(
                    f"{wheel.name} has packages in its data folder", "No runtime can be made of it."
                )
            packed.extractall(site)
    except (ValueError, zipfile.BadZipFile) as error:
        raise NoRuntime(
            f"{wheel.name} is no wheel: {error}", "Look at the package index that pip uses."
        ) from error
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"


def supported(target: Target) -> frozenset[Tag]:
    """The tags of wheels that run there."""
    platforms, interpreter = target.platforms(), f"cp{target.version.replace('.', '')}"
    return frozenset(
        [
            *cpython_tags(target.python, [interpreter], platforms),
            *compatible_tags(target.python, interpreter, platforms),
        ]
    )
