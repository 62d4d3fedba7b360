"""One file with all that this machine knows of a cluster, for a colleague or another machine.

The file has the cluster's record, its YAML, its secret, its own key pair and pinned host keys. It never has the
operator's private key (`auth.ssh_private_key`), credentials of a cloud, or logs. What the YAML itself holds, such as
the `config` of an external provider, is in it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath

import msgspec

from clusterctl.errors import CliError, UsageProblem
from clusterctl.home import LET_IN, ClusterRecord, Home
from runtime._system import files

_VERSION = 1
_LEFT_OUT = frozenset({"cluster.json", "head.json", "logs"})
"""The record travels by itself; the next `up` writes the head's configuration."""
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class Export(msgspec.Struct, kw_only=True, tag_field="kind", tag="clusterctl cluster"):
    """What the file holds, as JSON. `files`: name in the cluster's folder -> contents."""

    version: int
    record: ClusterRecord
    yaml: str
    files: dict[str, bytes]


def packed(home: Home, record: ClusterRecord) -> bytes:
    """What is known of a cluster.

    Raises:
        NotFound: the secret of a cluster that was up is gone.
    """
    if record.api_url:
        home.secret(record.name)
    folder = home.folder(record.name)
    own_key = os.path.realpath(os.path.expanduser(record.spec.auth.ssh_private_key))
    contents = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        hidden = any(part.startswith(".") for part in name.parts)  # drafts of files that are being written
        if name.parts[0] in _LEFT_OUT or hidden or path.is_symlink() or not path.is_file():
            continue
        if os.path.realpath(path) != own_key:
            contents[name.as_posix()] = path.read_bytes()
    try:
        yaml = Path(record.spec_file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        yaml = ""  # moved or removed: the record has the spec
    return msgspec.json.encode(Export(version=_VERSION, record=record, yaml=yaml, files=contents))


def read(file: str) -> Export:
    """An exported cluster.

    Raises:
        UsageProblem: the file cannot be read, or is not an export.
    """
    try:
        found = msgspec.json.decode(Path(file).read_bytes(), type=Export)
    except OSError as error:
        raise UsageProblem(f"{file} cannot be read: {error.strerror or error}") from error
    except msgspec.MsgspecError as error:
        raise UsageProblem(
            f"{file} is not an exported cluster: {error}",
            "`clusterctl cluster export` writes such files; both sides need the same version of clusterctl.",
        ) from error
    record = found.record
    if found.version != _VERSION:
        raise UsageProblem(
            f"{file} has version {found.version}, and this clusterctl reads version {_VERSION}",
            "Export it again with this version of clusterctl.",
        )
    names = (record.name, record.cluster_id)
    if record.name != record.spec.cluster_name or not all(_PLAIN.fullmatch(name) for name in names):
        raise UsageProblem(f"{file} is not an exported cluster: its name '{record.name}' is not valid")
    for name in found.files:
        parts = PurePosixPath(name).parts
        if not parts or parts[0] in _LEFT_OUT or not all(_PLAIN.fullmatch(part) for part in parts):
            raise UsageProblem(f"{file} is not an exported cluster: '{name}' is not a file of a cluster")
    return found


def unpack(home: Home, export: Export) -> ClusterRecord:
    """Makes an exported cluster known here, with the owner that it was made with. The caller holds its lock.

    Raises:
        UsageProblem: a cluster of this name is known here.
        CliError: it cannot be written.
    """
    record = export.record
    known = home.read(record.name)
    if known is not None:
        which = "it" if known.cluster_id == record.cluster_id else "another cluster of this name"
        raise UsageProblem(
            f"cluster '{record.name}' cannot be imported: {which} is known here",
            "Import into another state folder (CLUSTERCTL_HOME), or end the one that is known here first.",
        )
    folder = home.folder(record.name)
    try:
        for name, data in export.files.items():
            path = folder / name
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if name == LET_IN and path.exists():  # of an earlier life of this name
                data = (
                    b"\n".join(dict.fromkeys((*path.read_bytes().splitlines(), *data.splitlines()))) + b"\n"
                )
            files.replace(str(path), data)
        if export.yaml:
            record.spec_file = str(home.imported_file(record.cluster_id))
            os.makedirs(os.path.dirname(record.spec_file), mode=0o700, exist_ok=True)
            files.replace(record.spec_file, export.yaml.encode())
    except OSError as error:
        raise CliError(f"{error.filename} cannot be written: {error.strerror or error}") from error
    here = home.provider_settings(record.name)
    record.provider_settings = {key: here.get(key, value) for key, value in record.provider_settings.items()}
    home.write(record)  # last: until then nothing is known
    return record
