"""Which accelerators a worker's tasks see: environment variables of the lease, put back when it ends."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from runtime._core.accelerators import HARDWARE, split_ids
from runtime._system import settings


class Devices:
    """The accelerators of this process.

    A node counts its devices from 0. Where the process was started with only some of them visible, its first is
    the first of those.
    """

    def __init__(self) -> None:
        self._visible = {
            name: split_ids(settings.VISIBLE_DEVICES[kind.variable].get()) for name, kind in HARDWARE.items()
        }
        self._original: dict[str, str | None] = {}  # what we changed

    def bind(self, gpu_ids: Sequence[str], other_ids: Mapping[str, Sequence[str]]) -> None:
        """The tasks to come may use these devices, and nothing of what those before might."""
        if self._original:
            for name, value in self._original.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
            self._original = {}
        wanted: dict[str, Sequence[str]] = {}
        if settings.HIDE_UNASKED_DEVICES.get_or_default():
            wanted.update(dict.fromkeys(HARDWARE, ()))
        if gpu_ids:
            wanted["GPU"] = gpu_ids
        wanted.update(other_ids)
        for resource, numbers in wanted.items():
            kind = HARDWARE[resource]
            if not settings.KEEP_VISIBLE_DEVICES[kind.opt_out].get_or_default():
                for name, value in kind.environment(self.ids(resource, numbers)).items():
                    self._original.setdefault(name, os.environ.get(name))
                    os.environ[name] = value

    def ids(self, resource: str, numbers: Sequence[str]) -> list[str]:
        """The ids, as this process knows them, of the node's devices `numbers`."""
        visible = self._visible.get(resource)
        if visible is None:
            return list(numbers)
        if any(int(number) >= len(visible) for number in numbers):
            return visible  # its own environment shows it fewer than the node has
        return [visible[int(number)] for number in numbers]

    def gpu_ids(self, numbers: Sequence[str]) -> list[int] | list[str]:
        """As `ids`; numbers where the process sees all GPUs."""
        if self._visible["GPU"] is None:
            return [int(number) for number in numbers]
        return self.ids("GPU", numbers)
