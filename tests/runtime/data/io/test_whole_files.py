"""Sources of which a file is one row, and arrays."""

from __future__ import annotations

import wave

import numpy as np
import PIL.Image
import pytest

from runtime.data._block import batch
from runtime.data.datasource import Partitioning
from runtime.data.io.arrays import NumpyDatasource
from runtime.data.io.binary import BinaryDatasource
from runtime.data.io.errors import FileReadError
from runtime.data.io.files import FileBasedDatasource
from runtime.data.io.images import ImageDatasource
from tests.runtime.data.io.reading import blocks, rows


def test_binary(tmp_path):
    (tmp_path / "a").write_bytes(b"x\0y")
    (tmp_path / "b").write_bytes(b"")
    source = BinaryDatasource(tmp_path, include_paths=True)
    assert rows(source, 2) == [
        {"bytes": b"x\0y", "path": str(tmp_path / "a")},
        {"bytes": b"", "path": str(tmp_path / "b")},
    ]
    assert source.row_count() == 2
    assert [task.metadata.num_rows for task in source.get_read_tasks(1)] == [2]


def test_numpy(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(6).reshape(3, 2))
    np.save(tmp_path / "b.npy", np.arange(2).reshape(1, 2))
    (table,) = blocks(NumpyDatasource(tmp_path))
    assert np.array_equal(batch.to_batch(table)["data"], [[0, 1], [2, 3], [4, 5], [0, 1]])


def test_numpy_with_objects_only_if_allowed(tmp_path):
    np.save(tmp_path / "a.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(FileReadError, match="allow_pickle"):
        rows(NumpyDatasource(tmp_path))
    (table,) = blocks(NumpyDatasource(tmp_path, numpy_load_args={"allow_pickle": True}))
    assert table.num_rows == 1


@pytest.fixture
def images(tmp_path):
    rng = np.random.default_rng(0)
    for label, side in (("cat", 4), ("cat", 6), ("dog", 4)):
        (tmp_path / label).mkdir(exist_ok=True)
        pixels = rng.integers(0, 255, (side, side + 1, 3), dtype=np.uint8)
        PIL.Image.fromarray(pixels).save(tmp_path / label / f"{side}.png")
    return tmp_path


def test_images_of_several_sizes(images):
    folders = Partitioning("dir", field_names=["label"], base_dir=str(images))
    (table,) = blocks(ImageDatasource(images, partitioning=folders))
    read = batch.to_batch(table)
    assert [image.shape for image in read["image"]] == [(4, 5, 3), (6, 7, 3), (4, 5, 3)]
    assert list(read["label"]) == ["cat", "cat", "dog"]
    with PIL.Image.open(images / "dog" / "4.png") as image:
        assert np.array_equal(read["image"][2], np.asarray(image))


def test_images_of_one_size_and_mode(images):
    source = ImageDatasource(images, size=(2, 3), mode="L")
    (table,) = blocks(source)
    assert batch.to_batch(table)["image"].shape == (3, 2, 3)
    assert source.estimate_inmemory_data_size() == 18
    assert source.row_count() == 3


def test_what_is_no_image_is_named(images):
    (images / "dog" / "5.png").write_bytes(b"text")
    with pytest.raises(FileReadError, match=r"5\.png: UnidentifiedImageError"):
        blocks(ImageDatasource(images))
    with pytest.raises(ValueError, match="positive"):
        ImageDatasource(images, size=(0, 3))


def test_a_source_of_ones_own(tmp_path):
    class Lengths(FileBasedDatasource):
        def _read_stream(self, f, path):
            import pandas as pd

            yield pd.DataFrame({"n": [len(f.read())]})

    (tmp_path / "a").write_bytes(b"xyz")
    assert rows(Lengths(tmp_path, include_paths=True)) == [{"n": 3, "path": str(tmp_path / "a")}]


def test_audio(tmp_path):
    pytest.importorskip("soundfile")
    from runtime.data.io.audio import AudioDatasource

    with wave.open(str(tmp_path / "a.wav"), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(np.array([[0, 16384], [-32768, 0], [8192, 0]], np.int16).tobytes())
    (task,) = AudioDatasource(tmp_path).get_read_tasks(1)
    (row,) = [row for table in task() for row in batch.rows(table)]
    assert row["sample_rate"] == 8000
    assert row["amplitude"].tolist() == [[0.0, -1.0, 0.25], [0.5, 0.0, 0.0]]
    assert task.metadata.num_rows == 1
