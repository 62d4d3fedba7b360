"""`ray._private.utils`: what programs take from there."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import psutil

from runtime.compat._common.utils import binary_to_hex, get_system_memory, hex_to_binary
from runtime.object_ref import ObjectRef

__all__ = [
    "binary_to_hex",
    "binary_to_object_ref",
    "get_directory_size_bytes",
    "get_num_cpus",
    "get_system_memory",
    "get_used_memory",
    "hex_to_binary",
    "is_main_thread",
]


def binary_to_object_ref(binary_object_ref: bytes) -> ObjectRef:
    """The reference of an id."""
    return ObjectRef(binary_object_ref)


def get_num_cpus(override_docker_cpu_warning: bool = False, truncate: bool = True) -> float:
    """The CPUs that this process may use; the arguments are for Ray's sake."""
    return len(os.sched_getaffinity(0))


def get_used_memory() -> int:
    """The machine's memory in use, in bytes."""
    memory = psutil.virtual_memory()
    return int(memory.total - memory.available)


def get_directory_size_bytes(path: str | Path = ".") -> int:
    """The size of all files below a folder."""
    return sum(file.stat().st_size for file in Path(path).rglob("*") if file.is_file())


def is_main_thread() -> bool:
    """Whether this is the process's main thread."""
    return threading.current_thread() is threading.main_thread()
