"""Lists of a checkpoint's files."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.train._core import manifest
from runtime.train._core.manifest import Clash, FileRecord, Manifest, PartManifest, Place


def part(rank: int, **files: int) -> PartManifest:
    return PartManifest(rank, {name: FileRecord(10 + crc, crc) for name, crc in files.items()})


class TestMerging:
    def test_files_of_all_ranks_come_together(self) -> None:
        files, clashes = manifest.merge([part(1, b=2), part(0, a=1)])
        assert files == {"a": FileRecord(11, 1), "b": FileRecord(12, 2)}
        assert clashes == []

    def test_equal_files_of_one_name_do_not_clash(self) -> None:
        files, clashes = manifest.merge([part(0, a=1), part(1, a=1)])
        assert files == {"a": FileRecord(11, 1)}
        assert clashes == []

    def test_different_files_of_one_name_clash_and_their_hash_is_unknown(self) -> None:
        parts = [part(0, a=1, b=3), PartManifest(1, {"a": FileRecord(11, 2)}), part(2, b=4)]
        files, clashes = manifest.merge(parts)
        assert files == {"a": FileRecord(11, None), "b": FileRecord(-1, None)}
        assert clashes == [Clash("a", [0, 1]), Clash("b", [0, 2])]

    @pytest.mark.parametrize("path", ["../a", "/a", "a/../../b", "", "a//b", "./a"])
    def test_paths_stay_in_the_checkpoint(self, path: str) -> None:
        with pytest.raises(ValueError, match=r"Rank 3: .* is no path within a checkpoint"):
            manifest.merge([PartManifest(3, {path: FileRecord(1)})])


class TestFile:
    def test_is_read_as_it_was_written(self) -> None:
        one = Manifest(
            number=3,
            created_s=1.5,
            files={"a/b": FileRecord(5, 7), "c": FileRecord(-1)},
            ranks=[0, 2],
            place=Place("s3://bucket/x", b"\x00\xff"),
            metrics={"loss": 0.5, "inner": {"a": [1, None]}},
            pickled_metrics=b"\x80",
        )
        assert manifest.decode(manifest.encode(one)) == one

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"{}",
            b'{"name": "an app"}',
            b"[1]",
            b"\xff\xfe",
            b'{"format": 1, "number": 0, "created_s": 1, "files": {}}',
            b'{"format": 1, "number": 1, "created_s": 1, "files": {"../a": {"size_bytes": 1}}}',
            b'{"format": 1, "number": 1, "created_s": 1, "files": {"a": {"size_bytes": -7}}}',
        ],
    )
    def test_other_bytes_are_none(self, data: bytes) -> None:
        with pytest.raises(manifest.InvalidManifest, match="damaged"):
            manifest.decode(data)

    def test_a_part_of_one_is_none(self) -> None:
        data = manifest.encode(Manifest(number=1, created_s=0.0, files={"a": FileRecord(1, 2)}))
        for length in range(0, len(data) - 1, 7):
            with pytest.raises(manifest.InvalidManifest):
                manifest.decode(data[:length])

    def test_one_of_a_later_version_says_so(self) -> None:
        with pytest.raises(manifest.InvalidManifest, match="Use a later version"):
            manifest.decode(b'{"format": 2, "what": "ever"}')


def test_differences_name_the_files() -> None:
    files = {"a": FileRecord(1), "b": FileRecord(2), "c": FileRecord(-1), "d": FileRecord(4)}
    found = manifest.differences(files, {"a": 1, "b": 3, "c": 9, "user's": 1})
    assert found == ["b has 3 bytes, not 2", "d is missing"]


@pytest.mark.parametrize(
    ("metrics", "readable", "is_exact"),
    [
        ({"a": 1, "b": [1.5, "x", None, True]}, {"a": 1, "b": [1.5, "x", None, True]}, True),
        ({"a": float("nan")}, {"a": None}, False),
        ({"a": (1, 2)}, {"a": [1, 2]}, False),
        ({"a": {1: 2}}, {"a": {"1": 2}}, False),
        ({"a": {1, 2}}, {"a": [1, 2]}, False),
        ({"a": 1 << 80}, {"a": 1 << 80}, True),
        ({"a": 1j, "b": 2}, {"a": "1j", "b": 2}, False),
    ],
)
def test_metrics_are_readable(metrics: dict[str, Any], readable: dict[str, Any], is_exact: bool) -> None:
    assert manifest.readable(metrics) == (readable, is_exact)


@pytest.mark.parametrize(
    ("name", "is_one"),
    [("checkpoint_1", True), ("epoch=3 loss=0.1", True), ("a.b", True)]
    + [(name, False) for name in ("", ".", "..", ".hidden", "a/b", "a\\b", "a\n", "x" * 201)],
)
def test_names(name: str, is_one: bool) -> None:
    assert manifest.is_name(name) is is_one
