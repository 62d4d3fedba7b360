"""Names that programs take from `ray._common.utils`."""

from __future__ import annotations

import asyncio
import importlib
import os
import secrets
import string
from typing import Any

import psutil

_LETTERS = string.ascii_lowercase + string.digits


def hex_to_binary(hex_identifier: str) -> bytes:
    """The bytes of an id in hex."""
    return bytes.fromhex(hex_identifier)


def binary_to_hex(identifier: bytes) -> str:
    """An id in hex."""
    return identifier.hex()


def get_or_create_event_loop() -> asyncio.AbstractEventLoop:
    """The running event loop, else that of the thread, else a new one, which becomes that of the thread."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        pass
    try:
        return asyncio.get_event_loop_policy().get_event_loop()
    except RuntimeError:
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        return loop


def get_system_memory() -> int:
    """The machine's memory in bytes, or the limit of the control group if that is less."""
    total = int(psutil.virtual_memory().total)
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(file) as limit:
                return min(total, int(limit.read()))
        except (OSError, ValueError):  # "max" is no number
            continue
    return total


def import_attr(full_path: str, *, reload_module: bool = False) -> Any:
    """The object at `package.module.name` or `package.module:name`.

    Raises:
        TypeError, ImportError, AttributeError: it does not exist.
    """
    if full_path is None:
        raise TypeError("import path cannot be None")
    module_name, _, name = full_path.replace(":", ".").rpartition(".")
    module = importlib.import_module(module_name)
    if reload_module:
        importlib.reload(module)
    return getattr(module, name)


def load_class(path: str) -> Any:
    """The class at `package.module.Class`.

    Raises:
        ValueError: the path does not name a module.
    """
    if "." not in path:
        raise ValueError(f"{path!r} is not the path of a class, such as package.module.Class.")
    return import_attr(path)


def get_random_alphanumeric_string(length: int) -> str:
    """Random lower-case letters and digits."""
    return "".join(secrets.choice(_LETTERS) for _ in range(length))


def env_integer(key: str, default: int) -> int:
    """An environment variable as a whole number; `default` if it is not one."""
    value = os.environ.get(key, "")
    return int(value) if value.isdigit() else default


def env_float(key: str, default: float) -> float:
    """An environment variable as a number; `default` if it is not one."""
    try:
        return float(os.environ[key])
    except (KeyError, ValueError):
        return default


def env_bool(key: str, default: bool) -> bool:
    """Whether an environment variable is "1" or "true"; `default` if it is not set."""
    value = os.environ.get(key)
    return default if value is None else value.lower() in ("true", "1")
