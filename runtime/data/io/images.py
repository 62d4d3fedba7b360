"""Images, decoded by Pillow."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from runtime.data._libraries import load
from runtime.data.io.files import FileBasedDatasource
from runtime.data.io.paths import File
from runtime.data.io.sinks import RowBasedFileDatasink

if TYPE_CHECKING:
    import pyarrow as pa

_CHANNELS = {"1": 1, "L": 1, "P": 1, "LA": 2, "PA": 2, "RGBA": 4, "CMYK": 4, "RGBX": 4, "I": 4, "F": 4}


class ImageDatasource(FileBasedDatasource):
    """A row per image, in the column "image": an array of height, width and, unless gray, channels.

    Args:
        size: Height and width in pixels to which images are resized.
        mode: Pillow's mode to which images are converted, for example "RGB" or "L".

    Raises:
        ValueError: The size is not two positive numbers.
        ImportError: Pillow is not installed.
    """

    _SIZE_RATIO = 8.0

    def __init__(
        self, paths: Any, *, size: tuple[int, int] | None = None, mode: str | None = None, **options: Any
    ) -> None:
        if size is not None and (len(size) != 2 or min(size) <= 0):
            raise ValueError(f"size must be a positive height and width, not {size}.")
        load("PIL.Image", "read_images")
        super().__init__(paths, **options)
        self._size = size
        self._mode = mode

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[pa.Table]:
        import numpy as np
        import PIL.Image

        from runtime.data._block import batch

        with PIL.Image.open(io.BytesIO(f.read())) as source:
            image: PIL.Image.Image = source
            if self._size is not None:
                height, width = self._size
                image = image.resize((width, height), resample=PIL.Image.Resampling.BILINEAR)
            if self._mode is not None and image.mode != self._mode:
                image = image.convert(self._mode)
            pixels = np.asarray(image)
        yield batch.from_batch({"image": pixels[np.newaxis]})

    def _known_rows(self, files: Any) -> int | None:
        return len(files)

    def row_count(self) -> int | None:
        """The number of images."""
        return len(self._files) if self._limit is None else min(self._limit, len(self._files))

    def _estimate(self, file: File) -> int:
        if self._size is None:
            return super()._estimate(file)
        return self._size[0] * self._size[1] * _CHANNELS.get(self._mode or "RGB", 3)


class ImageDatasink(RowBasedFileDatasink):
    """Writes the images of a column to a file each.

    Args:
        column: The column, of arrays of height, width and channels.
        file_format: Pillow's format, which is also the ending of names.
    """

    def __init__(self, path: str, *, column: str, file_format: str, **options: Any) -> None:
        load("PIL.Image", "write_images")
        super().__init__(path, file_format=file_format, **options)
        self._column = column
        self._format = "jpeg" if file_format.lower() == "jpg" else file_format

    def write_row_to_file(self, row: dict[str, Any], file: pa.NativeFile) -> None:
        import PIL.Image

        if self._column not in row:
            raise ValueError(f"There is no column {self._column!r} to write, but {list(row)}.")
        buffer = io.BytesIO()
        PIL.Image.fromarray(row[self._column]).save(buffer, format=self._format)
        file.write(buffer.getbuffer())
