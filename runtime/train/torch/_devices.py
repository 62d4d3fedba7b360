"""Which device a worker computes on."""

from __future__ import annotations

from collections.abc import Sequence

import torch

import runtime
from runtime._system import settings
from runtime.train._run.session import current

_CUDA = settings.VISIBLE_DEVICES["CUDA_VISIBLE_DEVICES"]


def get_device() -> torch.device:
    """The worker's device: its first GPU, or the CPU.

    Raises:
        RuntimeError: this is not a training function.
    """
    return get_devices()[0]


def get_devices() -> list[torch.device]:
    """The worker's devices: its GPUs, in the order of their ids, or the CPU alone.

    Raises:
        RuntimeError: this is not a training function.
    """
    current()
    return own_devices()


def own_devices() -> list[torch.device]:
    """As `get_devices`, also outside of a training function."""
    if not torch.cuda.is_available():
        return [torch.device("cpu")]
    return [torch.device(f"cuda:{index}") for index in indices(gpu_ids(), visible())]


def gpu_ids() -> list[str]:
    """The ids of the worker's GPUs."""
    return [str(each) for each in runtime.get_gpu_ids()] if runtime.is_initialized() else []


def visible() -> list[str] | None:
    """The ids of the GPUs that torch counts from 0 in this process; None: all of the machine."""
    text = _CUDA.get()
    return None if text is None else [each for each in text.split(",") if each]


def indices(own: Sequence[str], shown: Sequence[str] | None) -> list[int]:
    """torch's numbers of GPUs.

    Args:
        own: ids of the worker's.
        shown: ids of those that the process sees; None: all, and ids are numbers.
    """
    if not own:
        return [0]  # GPUs that the cluster does not count
    if shown is None:
        return sorted(int(each) for each in own)
    return sorted(shown.index(each) for each in own if each in shown) or [0]
