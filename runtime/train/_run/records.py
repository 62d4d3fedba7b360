"""What a run's folder says of the run: its configuration, the metrics of all ranks, and how it ended."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from runtime.train._run.job import Job
from runtime.train._run.storage import RunStorage

CONFIG = "config.json"
METRICS = "metrics.jsonl"
RESULT = "result.json"
REMOTE_S = 30.0
"""A remote file is written anew as a whole, so at most this often."""
MOST_ELEMENTS = 1000
"""Larger arrays among the metrics are described in place of written."""
MOST_TEXT = 500


class _Line(msgspec.Struct, omit_defaults=True):
    """A report of a rank. Reports are counted from 0, anew after each failure."""

    time: float
    rank: int
    report: int
    metrics: msgspec.Raw
    failures: int = 0
    checkpoint: str = ""


class RunRecords:
    """Writes them. What cannot be written as JSON is described in words.

    Args:
        storage: of the run.
    """

    def __init__(self, storage: RunStorage) -> None:
        self._storage = storage
        self._waiting: list[bytes] = []
        self._written_s = time.monotonic()
        self._since = time.time()

    def begin(self, config: Mapping[str, Any]) -> None:
        """Writes the configuration."""
        self._storage.write(CONFIG, msgspec.json.format(encoded(config)))

    def add(self, number: int, metrics: Sequence[Mapping[str, Any]], checkpoint: str, failures: int) -> None:
        """A report of all ranks. `flush` writes it."""
        now = time.time()
        for rank, one in enumerate(metrics):
            line = _Line(now, rank, number, msgspec.Raw(encoded(one)), failures, checkpoint)
            self._waiting.append(_encoder.encode(line))

    def flush(self, at_once: bool = False) -> None:
        """Writes what was added; to a remote file when it is time, or at once."""
        if not self._waiting:
            return
        now = time.monotonic()
        if not (at_once or self._storage.is_local or now >= self._written_s + REMOTE_S):
            return
        text = b"\n".join([*self._waiting, b""]).decode()
        self._waiting.clear()
        self._written_s = now
        self._storage.append_lines(METRICS, text)

    def end(self, status: str, error: str, metrics: Mapping[str, Any] | None, failures: int) -> None:
        """Writes how it ended."""
        self.flush(at_once=True)
        result = {
            "status": status,
            "error": error,
            "metrics": metrics,
            "failures": failures,
            "seconds": round(time.time() - self._since, 3),
        }
        self._storage.write(RESULT, msgspec.json.format(encoded(result)))


def config_of(job: Job) -> dict[str, Any]:
    """What is written of a run's configuration. Values of environment variables are left out."""
    run = {name: value for name, value in vars(job.run).items() if name != "worker_runtime_env"}
    environment = dict(job.run.worker_runtime_env or {})
    if "env_vars" in environment:
        environment["env_vars"] = sorted(environment["env_vars"])
    given = getattr(job.function, "args", ())
    function = getattr(job.function, "func", job.function)
    return {
        "train_loop": getattr(function, "__qualname__", repr(function)),
        "train_loop_config": given[0] if given else {},
        "scaling_config": job.scaling,
        "run_config": {**run, "worker_runtime_env": environment},
        "backend": type(job.backend).__name__,
        "datasets": sorted(job.datasets),
        "metadata": job.metadata,
    }


def encoded(value: Any) -> bytes:
    """JSON of a value. NaN and infinities are null there."""
    try:
        return _encoder.encode(value)
    except Exception:  # keys that are none, a cycle, a number of more than 64 bits
        return _encoder.encode(repr(value)[:MOST_TEXT])


def _plain(value: Any) -> Any:
    """What stands for a value that JSON has no notion of."""
    listed = getattr(value, "tolist", None)  # arrays, tensors, and their scalars
    if callable(listed):
        size = getattr(value, "size", 0)
        count = value.numel() if callable(size) else size
        if count <= MOST_ELEMENTS:
            return listed()
        return f"{type(value).__name__} of shape {tuple(value.shape)}"
    if isinstance(value, Mapping):
        return dict(value)
    return getattr(value, "__qualname__", None) or repr(value)[:MOST_TEXT]


_encoder = msgspec.json.Encoder(enc_hook=_plain)
