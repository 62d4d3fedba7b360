"""What is remembered of a cluster's machines, for those that do not answer. All of it may be lost."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from clusterctl.home import LET_IN
from runtime._system import files

from .claim import Claim

log = logging.getLogger(__name__)
_MACHINES = "machines.json"


class Memory:
    """The files of it in a cluster's folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def is_blank(self) -> bool:
        """Whether nothing was ever kept here: the cluster is new, or another's computer remembers it."""
        return not (self.knows_whom_it_let_in or (self._folder / _MACHINES).exists())

    def machines(self) -> dict[str, Claim]:
        """The machines of the cluster as they were last seen, by name."""
        try:
            data = (self._folder / _MACHINES).read_bytes()
            return {claim.host: claim for claim in msgspec.json.decode(data, type=list[Claim])}
        except (FileNotFoundError, msgspec.MsgspecError):
            return {}

    def keep_machines(self, seen: Mapping[str, Claim], before: Mapping[str, Claim]) -> None:
        """Where it cannot be written what was known before stays: the machines themselves say what is true."""
        if dict(seen) == dict(before):
            return
        try:
            self._write(_MACHINES, msgspec.json.encode([*seen.values()]))
        except OSError as error:
            log.debug("%s cannot be written: %s", self._folder / _MACHINES, error)

    @property
    def knows_whom_it_let_in(self) -> bool:
        return (self._folder / LET_IN).exists()

    def let_in(self) -> Sequence[str]:
        """The machines to which the head was given a key, or may have been, as the spec names or named them."""
        with contextlib.suppress(FileNotFoundError):
            return (self._folder / LET_IN).read_text(encoding="utf-8").splitlines()
        return []

    def keep_let_in(self, entries: Iterable[str]) -> None:
        """Replaces what `let_in` says.

        Raises:
            OSError: it cannot be written; what was known before stays.
        """
        self._write(LET_IN, "".join(f"{entry}\n" for entry in dict.fromkeys(entries)).encode())

    def forget(self) -> None:
        for file in (LET_IN, _MACHINES):
            (self._folder / file).unlink(missing_ok=True)

    def _write(self, name: str, data: bytes) -> None:
        """The whole file, or nothing of it."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.replace(str(self._folder / name), data)
