"""The place of a trial in its runner: the folder, the checkpoints, and what every result is filled with."""

from __future__ import annotations

import os
import socket
import tempfile
import time
from datetime import datetime
from typing import Any

import msgspec

import runtime
from runtime.train._run.files import join
from runtime.train._run.storage import RunStorage
from runtime.tune._api.exceptions import TuneError
from runtime.tune._core.messages import Assignment
from runtime.tune._core.trial import Saved


class Folder(msgspec.Struct, frozen=True):
    """The experiment's folder.

    Attributes:
        path: the `storage_path`.
        name: of the experiment.
        filesystem: of `path`, if it is no local path and no URI.
        marker: a file in it, by which a node sees that it has the same folder.
    """

    path: str
    name: str
    filesystem: Any
    marker: str

    def storage(self, dirname: str) -> RunStorage:
        """The storage of a trial's folder."""
        return RunStorage(join(self.path, self.name), dirname, self.filesystem)


class TrialPlace:
    """One run of a trial.

    Args:
        assignment: the trial.
        folder: of the experiment.
    """

    def __init__(self, assignment: Assignment, folder: Folder) -> None:
        self.assignment = assignment
        self.trial_id = assignment.trial_id
        self.folder = folder
        beginning = assignment.beginning
        self.checkpoint = beginning.checkpoint if beginning is not None else None
        self.iteration = beginning.iteration if beginning is not None else 0
        self._total_s = beginning.time_total_s if beginning is not None else 0.0
        self._own_iterations = 0
        self._own_s = 0.0
        self._number = assignment.checkpoint_number
        self._storage: RunStorage | None = None
        self._last_s = time.perf_counter()
        self._host = socket.gethostname()
        self._ip = runtime.util.get_node_ip_address()

    @property
    def storage(self) -> RunStorage:
        """Of the trial's folder."""
        if self._storage is None:
            self._storage = self.folder.storage(self.assignment.path)
        return self._storage

    @property
    def local_path(self) -> str:
        """A folder of the trial on this machine: its own, if the storage is a local one."""
        if self.storage.is_local:
            return self.storage.folder
        return os.path.join(tempfile.gettempdir(), "tune", self.folder.name, self.assignment.path)

    def save(
        self, checkpoint: Any, metrics: dict[str, Any], is_new: bool = True, copies: bool = True
    ) -> Saved:
        """Copies a checkpoint to the trial's folder, or notes there where it is.

        Args:
            checkpoint: its files are copied.
            metrics: that are reported with it.
            is_new: whether it belongs to the iteration that is being reported, or to the last one.
            copies: whether its files are copied.

        Raises:
            StorageError: the files cannot be read or written.
            TuneError: this node has not got the experiment's folder.
        """
        storage, name = self.storage, f"checkpoint_{self._number:06d}"
        if storage.is_local:
            marker = os.path.join(self.folder.path, self.folder.name, self.folder.marker)
            if not os.path.exists(marker):
                raise TuneError(
                    f"The checkpoint {name} of {self.assignment.name} cannot be stored: the node {self._ip} has not "
                    f"got the experiment's folder {os.path.dirname(marker)}. With several nodes storage_path must be a "
                    "folder that all of them share, or the URI of a storage such as s3://bucket/experiments."
                )
        if self._number == self.assignment.checkpoint_number:
            self._begin_saving()
        part = (
            storage.upload(checkpoint, name, 0, lambda: False)
            if copies
            else storage.adopt(checkpoint, name, 0)
        )
        plain = {key: value for key, value in metrics.items() if isinstance(value, int | float | str)}
        kept = storage.commit(name, [part], plain)
        self._number += 1
        self.checkpoint = kept
        return Saved(name, kept, plain, self.iteration + is_new, self._total_s + is_new * self.waited_s())

    def _begin_saving(self) -> None:
        """Opens the folder, and removes what a former run of the trial saved and could not tell any more."""
        storage = self.storage
        storage.open()
        for committed in storage.committed():
            if committed.name >= f"checkpoint_{self._number:06d}":
                storage.remove(storage.hide(committed.name))

    def filled(self, metrics: dict[str, Any], saved: Saved | None) -> dict[str, Any]:
        """A result: the metrics with what Ray's results have besides."""
        now = time.perf_counter()
        took_s, self._last_s = now - self._last_s, now
        self.iteration += 1
        self._own_iterations += 1
        self._total_s += took_s
        self._own_s += took_s
        moment = datetime.now()
        return {
            "timestamp": int(moment.timestamp()),
            "checkpoint_dir_name": saved.name if saved is not None else None,
            "should_checkpoint": saved is not None,
            "done": False,
            "training_iteration": self.iteration,
            "trial_id": self.trial_id,
            "date": moment.strftime("%Y-%m-%d_%H-%M-%S"),
            "time_this_iter_s": took_s,
            "time_total_s": self._total_s,
            "pid": os.getpid(),
            "hostname": self._host,
            "node_ip": self._ip,
            "time_since_restore": self._own_s,
            "iterations_since_restore": self._own_iterations,
            **metrics,
        }

    def waited_s(self) -> float:
        """Seconds since the last result, or the begin."""
        return time.perf_counter() - self._last_s

    def resumed(self) -> None:
        """The trial goes on: the time that it waited does not count."""
        self._last_s = time.perf_counter()
