"""Values packed into strings, as columns of RLlib's tables may hold them: base64 of an LZ4 frame of a pickle.

Only pickles of arrays, numbers, strings and containers of them are read: a file cannot run code.
"""

from __future__ import annotations

import base64
import io
import pickle
from typing import Any

import numpy as np

_ARRAY_PARTS = {
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    *(
        (f"numpy.{core}.{module}", name)
        for core in ("core", "_core")
        for module, name in (
            ("multiarray", "_reconstruct"),
            ("multiarray", "scalar"),
            ("numeric", "_frombuffer"),
        )
    ),
}


class _Arrays(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ARRAY_PARTS:
            raise pickle.UnpicklingError(f"it holds {module}.{name}, and only arrays are read")
        return super().find_class(module, name)


def pack(value: Any) -> str:
    """One value as a string."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "lz4") as stream:
        stream.write(pickle.dumps(value))
    return base64.b64encode(sink.getvalue()).decode("ascii")


def unpack(text: str | bytes) -> Any:
    """The value of `pack`.

    Raises:
        ValueError: this is no packed value, or one of something else than arrays.
    """
    import pyarrow as pa

    try:
        with pa.CompressedInputStream(
            pa.BufferReader(base64.b64decode(text, validate=True)), "lz4"
        ) as stream:
            return _Arrays(io.BytesIO(stream.read())).load()
    except (ValueError, OSError, EOFError, pickle.UnpicklingError) as error:
        raise ValueError(
            f"A column of offline data has text that is not a compressed value ({text[:20]!r}...): {error}"
        ) from error


def unpack_column(texts: np.ndarray) -> np.ndarray:
    """Array [rows, ...] of the packed values; the texts themselves if the first is no packed value (ids)."""
    try:
        first = unpack(texts[0])
    except ValueError:
        return texts
    return np.stack([np.asarray(first), *(np.asarray(unpack(text)) for text in texts[1:])])
