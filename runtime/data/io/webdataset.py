"""WebDataset: tar files in which the files of a sample stand together and have the same name up to the first dot."""

from __future__ import annotations

import fnmatch
import functools
import io
import json
import tarfile
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from runtime.data._libraries import load
from runtime.data.io.errors import FileReadError
from runtime.data.io.files import FileBasedDatasource
from runtime.data.io.rolling import StreamingFileDatasink, Writer

if TYPE_CHECKING:
    import pyarrow as pa

_BYTES_AT_ONCE = 16 * 1024 * 1024
_IMAGES = frozenset({"jpg", "jpeg", "png", "ppm", "pgm", "pbm", "pnm", "bmp", "gif", "webp"})

Sample = dict[str, Any]


class WebDatasetDatasource(FileBasedDatasource):
    """A row per sample: "__key__", "__url__", and a column per ending of its files.

    Args:
        decoder: True decodes by the ending: txt, cls (an integer), json, npy and images; pickles are left as bytes, for
            they may run code. None or False leaves all bytes. A function gets and returns a sample. "rgb", "pil" say
            how images are decoded. Several in a list are applied in order.
        fileselect: Which endings to read: a list of patterns or a function.
        filerename: Pairs (old, new) of endings, or a function.
        suffixes: Endings to read, as patterns.
        expand_json: Whether keys of the sample's "json" become columns.
    """

    def __init__(
        self,
        paths: Any,
        *,
        decoder: Any = True,
        fileselect: list[str] | Callable[[str], bool] | None = None,
        filerename: list[tuple[str, str]] | Callable[[str], str] | None = None,
        suffixes: list[str] | None = None,
        expand_json: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(paths, **options)
        self._decoders = [each for each in (decoder if isinstance(decoder, list) else [decoder]) if each]
        self._select = fileselect
        self._rename = filerename
        self._suffixes = suffixes
        self._expand_json = expand_json

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[pa.Table]:
        from runtime.data._block import batch

        rows: list[Sample] = []
        size = 0
        for number, (sample, sample_bytes) in enumerate(self._samples(f)):
            try:
                row = self._decoded({**sample, "__url__": path})
            except ImportError:
                raise
            except Exception as error:
                raise FileReadError(path, f"sample {sample['__key__']!r}: {error}", number) from error
            rows.append(row)
            size += sample_bytes
            if size >= _BYTES_AT_ONCE:
                yield batch.from_rows(rows)
                rows, size = [], 0
        if rows:
            yield batch.from_rows(rows)

    def _samples(self, f: pa.NativeFile) -> Iterator[tuple[Sample, int]]:
        """Samples with the bytes of their files."""
        sample: Sample = {}
        size = 0
        with tarfile.open(fileobj=f, mode="r|*") as archive:
            for member in archive:
                if not member.isfile():
                    continue
                folder, slash, name = member.name.rpartition("/")
                stem, dot, suffix = name.partition(".")
                suffix = suffix.lower()
                if not dot or not stem or not self._is_wanted(suffix):
                    continue
                key, suffix = folder + slash + stem, self._renamed(suffix)
                if sample and sample["__key__"] != key:
                    yield sample, size
                    sample, size = {}, 0
                if suffix in sample:
                    raise ValueError(f"sample {key!r} has two files with the ending {suffix!r}")
                sample.setdefault("__key__", key)
                content = archive.extractfile(member)
                assert content is not None
                sample[suffix] = content.read()
                size += len(sample[suffix])
        if sample:
            yield sample, size

    def _is_wanted(self, suffix: str) -> bool:
        if callable(self._select) and not self._select(suffix):
            return False
        patterns = [each for each in (self._select, self._suffixes) if isinstance(each, list)]
        return all(any(fnmatch.fnmatch(suffix, pattern.lstrip(".")) for pattern in each) for each in patterns)

    def _renamed(self, suffix: str) -> str:
        if callable(self._rename):
            return self._rename(suffix)
        return dict(self._rename or ()).get(suffix, suffix)

    def _decoded(self, sample: Sample) -> Sample:
        for decoder in self._decoders:
            if callable(decoder):
                sample = decoder(sample)
            else:
                sample = decode(sample, "rgb" if decoder is True else str(decoder))
        if self._expand_json and isinstance(sample.get("json"), dict):
            sample = {**sample, **sample["json"]}
        return sample


def decode(sample: Sample, images: str = "rgb") -> Sample:
    """The sample with its files decoded by their endings."""
    return {
        name: _decoded(name.rpartition(".")[2], value, images) if isinstance(value, bytes) else value
        for name, value in sample.items()
    }


def _decoded(suffix: str, data: bytes, images: str) -> Any:
    if suffix in ("txt", "text", "transcript"):
        return data.decode()
    if suffix in ("cls", "cls2", "index", "count", "inx", "id"):
        return int(data)
    if suffix in ("json", "jsn"):
        return json.loads(data)
    if suffix == "npy":
        import numpy as np

        return np.load(io.BytesIO(data))
    if suffix in _IMAGES:
        import numpy as np

        with load("PIL.Image", "read_webdataset with images").open(io.BytesIO(data)) as image:
            return np.asarray(image.convert("L" if images in ("l", "gray") else "RGB"))
    return data


class WebDatasetDatasink(StreamingFileDatasink):
    """Writes a sample per row into tar files: "__key__" names its files, other columns are their endings.

    Args:
        encoder: True encodes by the ending, as decoding does; False takes bytes and text only; a function gets and
            returns a sample. Several in a list are applied in order.
    """

    def __init__(self, path: str, *, encoder: Any = True, **options: Any) -> None:
        super().__init__(path, file_format="tar", **options)
        self._encoders = [each for each in (encoder if isinstance(encoder, list) else [encoder]) if each]

    def open_writer(self, file: pa.NativeFile, schema: pa.Schema) -> Writer:
        return _Writer(file, self._encoders)


class _Writer:
    def __init__(self, file: pa.NativeFile, encoders: Iterable[Any]) -> None:
        self._archive = tarfile.open(fileobj=file, mode="w|")  # noqa: SIM115
        self._encoders = [each if callable(each) else encode for each in encoders]
        self._rows = 0

    def write(self, table: pa.Table) -> None:
        from runtime.data._block import batch

        for row in batch.rows(table):
            sample = functools.reduce(lambda made, encoder: encoder(made), self._encoders, dict(row))
            key = sample.get("__key__") or f"{self._rows:08}"
            self._rows += 1
            for suffix, value in sample.items():
                if suffix.startswith("__") or value is None:
                    continue
                data = value.encode() if isinstance(value, str) else value
                if not isinstance(data, bytes):
                    raise TypeError(f"{suffix!r} of sample {key!r} is no bytes but {type(value).__name__}.")
                member = tarfile.TarInfo(f"{key}.{suffix}")
                member.size = len(data)
                self._archive.addfile(member, io.BytesIO(data))

    def close(self) -> None:
        self._archive.close()


def encode(sample: Sample) -> Sample:
    """The sample with its values as the bytes of files, by their endings. Raises TypeError for what has no form."""
    return {name: value if name.startswith("__") else _encoded(name, value) for name, value in sample.items()}


def _encoded(name: str, value: Any) -> Any:
    suffix = name.rpartition(".")[2]
    if value is None or isinstance(value, bytes | str):
        return value
    if suffix in ("json", "jsn"):
        from runtime.data.io.json_sink import line

        return line(value)
    if suffix in _IMAGES:
        buffer = io.BytesIO()
        form = "jpeg" if suffix == "jpg" else suffix
        load("PIL.Image", "write_webdataset with images").fromarray(value).save(buffer, format=form)
        return buffer.getvalue()
    if suffix == "npy":
        import numpy as np

        buffer = io.BytesIO()
        np.save(buffer, np.asarray(value))
        return buffer.getvalue()
    if isinstance(value, int | float) or type(value).__module__ == "numpy":
        return str(value)
    raise TypeError(
        f"A value of {type(value).__name__} has no form for the ending {name!r}; give an encoder."
    )
