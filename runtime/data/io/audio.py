"""Audio files, decoded by soundfile."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from runtime.data._libraries import load
from runtime.data.io.files import FileBasedDatasource

if TYPE_CHECKING:
    import pyarrow as pa


class AudioDatasource(FileBasedDatasource):
    """A row per file: "amplitude", an array of channels and samples from -1 to 1, and "sample_rate" in hertz.

    Raises:
        ImportError: soundfile is not installed.
    """

    _SIZE_RATIO = 2.0

    def __init__(self, paths: Any, **options: Any) -> None:
        load("soundfile", "read_audio")
        super().__init__(paths, **options)

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[pa.Table]:
        import numpy as np

        from runtime.data._block import batch

        samples, rate = load("soundfile", "read_audio").read(
            io.BytesIO(f.read()), dtype="float32", always_2d=True
        )
        amplitude = np.ascontiguousarray(samples.T)[np.newaxis]
        yield batch.from_batch({"amplitude": amplitude, "sample_rate": np.array([rate])})

    def _known_rows(self, files: Any) -> int | None:
        return len(files)
