"""The input of data.py: made once in a folder, the same for every tool, scaled from sizes that suit two cores."""

from __future__ import annotations

import datetime
import functools
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from figures import progress

MIB = 2**20
RECORD_BYTES = 256
FEATURES = 784
CROP = 64
"""Height and width of a photo."""
LINES_A_FILE = 20
ROWS_A_FILE = 50
TPCH_TABLES = ("lineitem", "orders", "customer")
EPOCH = datetime.date(1992, 1, 1)


class Inputs:
    """Folders with input, each made when it is first asked for, and kept for later runs.

    Args:
        folder: holds them all.
        scale: multiplies the numbers of rows and files; 1 makes 1 GB.
    """

    def __init__(self, folder: Path, scale: float) -> None:
        self.folder = folder
        self.scale = scale
        self.record_rows = self.scaled(2 * MIB)
        self.feature_rows = self.scaled(100_000)
        self.wide_rows = self.scaled(2_000_000)
        self.files = self.scaled(2000)

    def scaled(self, count: int) -> int:
        """At least 8: that many parts have the inputs of several files."""
        return max(8, int(count * self.scale))

    def _made(self, name: str, make: Callable[[Path], None]) -> Path:
        target = self.folder / f"{name}-{self.scale:g}"
        if not (target / ".done").exists():
            progress(f"data: making {target}")
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir(parents=True)
            make(target)
            (target / ".done").touch()
        return target

    @functools.cached_property
    def tpch(self) -> Path:
        """Folders with the tables of TPC-H at scale 0.2, in four files each: by tpchgen-cli, or else a likeness."""
        return self._made("tpch", self._make_tpch)

    def _make_tpch(self, target: Path) -> None:
        scale = max(0.001, 0.2 * self.scale)
        beside = Path(sys.executable).with_name("tpchgen-cli")
        program = str(beside) if beside.exists() else shutil.which("tpchgen-cli")
        if program is None:
            progress("data: tpchgen-cli is not installed: tables that are like those of TPC-H")
            _make_like_tpch(target, scale)
            return
        tables = f"--tables={','.join(TPCH_TABLES)}"
        command = [program, "parquet", "-s", str(scale), tables, "--parts=4", f"--output-dir={target}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        for path in target.glob(
            "*/*.parquet"
        ):  # not all tools have every operation for columns of string_view
            table = pq.read_table(path)
            plain = [c.cast(pa.string()) if pa.types.is_string_view(c.type) else c for c in table.columns]
            pq.write_table(pa.table(plain, names=table.column_names), path)

    @functools.cached_property
    def records(self) -> Path:
        """Parquet files of records with a key and a payload, 256 bytes each."""
        return self._made("records", self._make_records)

    def _make_records(self, target: Path) -> None:
        rng = np.random.default_rng(1)
        for part, rows in enumerate(parts_of(self.record_rows, 16)):
            width = RECORD_BYTES - 8
            payload = pa.py_buffer(rng.integers(0, 256, rows * width, dtype=np.uint8))
            body = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), rows, [None, payload])
            table = pa.table({"key": rng.integers(0, 2**62, rows), "payload": body})
            pq.write_table(table, target / f"{part:02}.parquet", compression="none", use_dictionary=False)

    @functools.cached_property
    def texts(self) -> Path:
        """Small files of lines."""
        return self._made("text", self._make_texts)

    def _make_texts(self, target: Path) -> None:
        rng = np.random.default_rng(2)
        for n in range(self.files):
            lines = [" ".join(f"w{w}" for w in rng.integers(0, 9999, 10)) for _ in range(LINES_A_FILE)]
            (target / f"{n:05}.txt").write_text("\n".join(lines) + "\n")

    @functools.cached_property
    def csv(self) -> Path:
        """Small CSV files."""
        return self._made("csv", self._make_csv)

    def _make_csv(self, target: Path) -> None:
        rng = np.random.default_rng(3)
        for n in range(self.files):
            values = rng.random(ROWS_A_FILE)
            rows = "".join(f"{n * ROWS_A_FILE + m},{value:.6f},name{m}\n" for m, value in enumerate(values))
            (target / f"{n:05}.csv").write_text("id,value,name\n" + rows)

    @functools.cached_property
    def photos(self) -> Path:
        """JPEG files, cut from scikit-learn's photos. Needs it, and Pillow."""
        return self._made("photos", self._make_photos)

    def _make_photos(self, target: Path) -> None:
        from PIL import Image
        from sklearn.datasets import load_sample_images

        rng = np.random.default_rng(8)
        photos = load_sample_images().images
        for n in range(self.scaled(5000)):
            photo = photos[n % len(photos)]
            y, x = (int(rng.integers(0, size - CROP)) for size in photo.shape[:2])
            Image.fromarray(photo[y : y + CROP, x : x + CROP]).save(target / f"{n:05}.jpg")

    @functools.cached_property
    def features(self) -> list[np.ndarray]:
        """Arrays of float32 rows."""
        rng = np.random.default_rng(4)
        return [rng.random((rows, FEATURES), dtype=np.float32) for rows in parts_of(self.feature_rows, 8)]

    @functools.cached_property
    def wide(self) -> Path:
        """Parquet files with four columns of numbers."""
        return self._made("wide", self._make_wide)

    def _make_wide(self, target: Path) -> None:
        rng = np.random.default_rng(5)
        start = 0
        for part, rows in enumerate(parts_of(self.wide_rows, 8)):
            columns = {
                "id": np.arange(start, start + rows),
                "a": rng.random(rows),
                "b": rng.random(rows),
                "c": rng.integers(0, 1000, rows),
            }
            pq.write_table(pa.table(columns), target / f"{part}.parquet")
            start += rows

    def keyed(self, single: bool) -> pa.Table:
        """A million rows with a key `k`, which is the same or nearly unique, and a value `v`."""
        rng = np.random.default_rng(6)
        rows = self.scaled(1_000_000)
        keys = np.zeros(rows, np.int64) if single else rng.integers(0, rows, rows)
        return pa.table({"k": keys, "v": rng.integers(0, 100, rows)})


def parts_of(total: int, parts: int) -> list[int]:
    """Sizes of equal parts, at most so many."""
    parts = min(parts, total)
    return [total * (n + 1) // parts - total * n // parts for n in range(parts)]


def _make_like_tpch(target: Path, scale: float) -> None:
    """The columns that the queries read, with values drawn evenly, as many rows as TPC-H has."""
    rng = np.random.default_rng(7)
    customers, orders, lines = (int(rows * scale) for rows in (150_000, 1_500_000, 6_000_000))

    def decimals(low: int, high: int) -> pa.Array:
        return pa.array(rng.integers(low, high, lines) / 100).cast(pa.decimal128(15, 2))

    def days(rows: int) -> pa.Array:
        since = (EPOCH - datetime.date(1970, 1, 1)).days
        return pa.array(since + rng.integers(0, 2400, rows, dtype=np.int32)).cast(pa.date32())

    def names(rows: int, *of: str) -> pa.Array:
        return pa.array(of).take(pa.array(rng.integers(0, len(of), rows)))

    made = {
        "customer": {
            "c_custkey": np.arange(1, customers + 1),
            "c_mktsegment": names(customers, "AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY"),
        },
        "orders": {
            "o_orderkey": np.arange(1, orders + 1),
            "o_custkey": rng.integers(1, customers + 1, orders),
            "o_orderdate": days(orders),
            "o_shippriority": np.zeros(orders, np.int32),
        },
        "lineitem": {
            "l_orderkey": np.sort(rng.integers(1, orders + 1, lines)),
            "l_quantity": decimals(100, 5100),
            "l_extendedprice": decimals(90_000, 10_500_000),
            "l_discount": decimals(0, 11),
            "l_tax": decimals(0, 9),
            "l_returnflag": names(lines, "A", "N", "R"),
            "l_linestatus": names(lines, "F", "O"),
            "l_shipdate": days(lines),
        },
    }
    for name, columns in made.items():
        (target / name).mkdir()
        table, start = pa.table(columns), 0
        for part, rows in enumerate(parts_of(table.num_rows, 4)):
            pq.write_table(table.slice(start, rows), target / name / f"{name}.{part + 1}.parquet")
            start += rows
