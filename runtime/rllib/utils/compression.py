"""Values packed into strings, as RLlib's recordings may hold them: base64 of an LZ4 frame of a pickle."""

from __future__ import annotations

from typing import Any

import numpy as np

from runtime.rllib._core.packing import pack, unpack

__all__ = ["compression_supported", "is_compressed", "pack", "pack_if_needed", "unpack", "unpack_if_needed"]


def compression_supported() -> bool:
    """Always: the codec is pyarrow's."""
    return True


def is_compressed(data: Any) -> bool:
    """Whether it may be a packed value: text or bytes."""
    return isinstance(data, bytes | str)


def pack_if_needed(data: Any) -> Any:
    """Arrays packed, other values as they are."""
    return pack(data) if isinstance(data, np.ndarray) else data


def unpack_if_needed(data: Any) -> Any:
    """The value of a packed string, other values as they are.

    Raises:
        ValueError: it is a string that is no packed value.
    """
    return unpack(data) if is_compressed(data) else data
