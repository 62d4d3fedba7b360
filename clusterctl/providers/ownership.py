"""Whose a cluster is. Machines carry the owner's id, by which its clusters are found, and a name for people to read.

The owner is the account and principal of the cloud's credentials. Where there is none, or it cannot be told, it is a
random id that is kept beside the state: a lost state folder then takes the identity with it.
"""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import os
import re
import secrets
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from autoscaler.provider import Config, Machine, MachineState, MachineTags

OWNER_TAG = "clusterctl-owner"
"""Tag: the owner's id."""
OWNER_NAME_TAG = "clusterctl-owner-name"
"""Tag: the owner as a person knows it. Machines of former versions lack it."""
_ID_SIZE = 16
_ODD = re.compile(r"[^A-Za-z0-9_.:/=+@-]")
_MOST = 200


@dataclass(frozen=True, slots=True)
class Owner:
    """An owner. `name`: "" where a former version made the machines."""

    id: str
    name: str = ""

    def __str__(self) -> str:
        return self.name or f"an owner that is not known (tag {self.id})"

    def tags(self) -> dict[str, str]:
        return {OWNER_TAG: self.id, **({OWNER_NAME_TAG: self.name} if self.name else {})}

    def settings(self) -> dict[str, str]:
        return {"owner": self.id, **({"owner_name": self.name} if self.name else {})}


@dataclass(frozen=True, slots=True)
class ForeignCluster:
    """A cluster of another owner. `machines`: their ids."""

    cluster_id: str
    owner: Owner
    machines: tuple[str, ...]

    def __str__(self) -> str:
        count = f"{len(self.machines)} machine{'s' if len(self.machines) > 1 else ''}"
        return f"{self.cluster_id} of {self.owner} ({count}: {', '.join(self.machines)})"


class Ownership:
    """The owner of a cluster, found out when it is first needed. Thread-safe.

    Args:
        settings: `owner` and `owner_name`, once they are known, else `owner_file`, for the id of this state folder.
        principal: asks the platform who its credentials belong to; "": it cannot be told.
    """

    def __init__(self, settings: Mapping[str, str], principal: Callable[[], str] = lambda: "") -> None:
        self._file = settings.get("owner_file", "")
        self._principal = principal
        self._lock = threading.Lock()
        self._owner: Owner | None = None
        if "owner" in settings:
            self._owner = Owner(settings["owner"], settings.get("owner_name", ""))

    @property
    def owner(self) -> Owner:
        """The owner.

        Raises:
            ProviderError: the platform refuses the credentials, or the id cannot be kept.
        """
        with self._lock:
            if self._owner is None:
                principal = self._principal()
                self._owner = of_principal(principal) if principal else of_file(self._file)
            return self._owner


def of_principal(principal: str) -> Owner:
    """The owner that is known to the platform. Pure."""
    return Owner(hashlib.sha256(principal.encode()).hexdigest()[:_ID_SIZE], _readable(principal))


def of_file(path: str) -> Owner:
    """The owner that a state folder stands for. Its id is made once.

    Raises:
        Config: it cannot be kept.
    """
    try:
        return Owner(_kept_id(path), _readable(f"{getpass.getuser()}@{socket.gethostname()}"))
    except (OSError, KeyError) as error:
        raise Config(
            f"{path}, which tells whose clusters are made here, cannot be used: {error}; make it writable, or make room"
        ) from error


def foreign(machines: Iterable[Machine], mine: Owner) -> list[ForeignCluster]:
    """The clusters among these machines that belong to others. Pure."""
    found: dict[tuple[str, Owner], list[str]] = {}
    for machine in machines:
        owner = Owner(machine.tags.get(OWNER_TAG, ""), machine.tags.get(OWNER_NAME_TAG, ""))
        if owner.id != mine.id and machine.state is not MachineState.GONE:
            cluster_id = machine.tags.get(MachineTags.CLUSTER_ID, "")
            found.setdefault((cluster_id, owner), []).append(machine.id)
    return [
        ForeignCluster(cluster_id, owner, tuple(sorted(ids)))
        for (cluster_id, owner), ids in sorted(found.items(), key=lambda item: item[0][0])
    ]


def _kept_id(path: str) -> str:
    with contextlib.suppress(FileNotFoundError):
        return _read(path)
    draft = f"{path}.{secrets.token_hex(4)}"
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(f"{secrets.token_hex(_ID_SIZE // 2)}\n")
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(draft, path)  # never over the id that another process has just made
    except FileExistsError:
        pass
    except OSError:  # the file system has no hard links
        os.replace(draft, path)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(draft)
    return _read(path)


def _read(path: str) -> str:
    with open(path, encoding="ascii") as file:
        found = file.read().strip()
    if not found:
        raise OSError("it is empty")
    return found


def _readable(text: str) -> str:
    """In letters that every platform's tags take."""
    return _ODD.sub("_", text)[:_MOST]
