"""Files on servers: real ones of HTTP and S3 on this machine, and fsspec's file system in memory."""

from __future__ import annotations

import functools
import http.server
import threading

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from runtime.data.io import opening, retries
from runtime.data.io.filesystems import resolve
from runtime.data.io.parquet import ParquetDatasource
from runtime.data.io.paths import File, expand
from runtime.data.io.text import TextDatasource
from tests.runtime.data.io.reading import rows


@pytest.fixture
def memory():
    filesystem = fsspec.filesystem("memory")
    yield filesystem
    filesystem.store.clear()
    filesystem.pseudo_dirs[:] = [""]


class TestMemory:
    def test_many_files_are_read_ahead_in_order(self, memory):
        for index in range(100):
            memory.pipe(f"/texts/{index:03}.txt", f"{index}\n".encode())
        source = TextDatasource("memory://texts", include_paths=True)
        assert rows(source, 2) == [{"text": str(i), "path": f"/texts/{i:03}.txt"} for i in range(100)]

    def test_patterns(self, memory):
        memory.pipe("/texts/a/1.txt", b"x")
        memory.pipe("/texts/b/2.txt", b"y")
        assert rows(TextDatasource("memory://texts/*/2.txt")) == [{"text": "y"}]

    def test_parquet(self, memory):
        with memory.open("/tables/0.parquet", "wb") as file:
            pq.write_table(pa.table({"id": np.arange(10)}), file, row_group_size=5)
        source = ParquetDatasource("memory://tables", columns=["id"])
        assert source.row_count() == 10
        assert [row["id"] for row in rows(source, 2)] == list(range(10))


class Site(http.server.SimpleHTTPRequestHandler):
    failures = 0

    def do_GET(self):
        if type(self).failures and self.path.endswith("b.txt"):
            type(self).failures -= 1
            self.send_error(503)
        else:
            super().do_GET()

    def log_message(self, *_):
        """Quiet."""


@pytest.fixture
def site(tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "b.txt").write_text("three\n")
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Site, directory=tmp_path)
    ) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class TestHTTP:
    @pytest.fixture(autouse=True)
    def _needs_aiohttp(self):
        pytest.importorskip("aiohttp")

    def test_files_by_their_addresses(self, site):
        source = TextDatasource([f"{site}/a.txt", f"{site}/b.txt"], include_paths=True)
        assert [row["text"] for row in rows(source)] == ["one", "two", "three"]
        assert rows(source)[2]["path"] == f"{site}/b.txt"

    def test_a_busy_server_is_asked_again(self, site, monkeypatch):
        monkeypatch.setattr(retries, "_FIRST_PAUSE_S", 0.001)
        source = TextDatasource(f"{site}/b.txt")
        monkeypatch.setattr(Site, "failures", 2)
        (task,) = source.get_read_tasks(1)
        assert [row for block in task() for row in block.to_pylist()] == [{"text": "three"}]
        assert Site.failures == 0

    def test_a_missing_file(self, site):
        with pytest.raises(FileNotFoundError, match=r"c\.txt"):
            TextDatasource(f"{site}/c.txt")


class TestS3:
    def test_text(self, s3):
        for index in range(20):
            with s3.open_output_stream(f"data/texts/{index:02}.txt") as file:
                file.write(f"{index}\n".encode())
        source = TextDatasource("s3://data/texts", filesystem=s3, include_paths=True)
        assert rows(source, 3) == [{"text": str(i), "path": f"data/texts/{i:02}.txt"} for i in range(20)]

    def test_addresses(self, s3, monkeypatch):
        with s3.open_output_stream("data/a b/x=1/t.txt") as file:
            file.write(b"hi")
        server = next(part for part in repr(s3.__reduce__()).split("'") if part.startswith("127.0.0.1:"))
        for name, value in {"ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b", "REGION": "us-east-1"}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        query = f"endpoint_override={server}&scheme=http"
        for path in ("a b", "a b/*/t.txt", "a b/x=1/t.txt"):
            assert rows(TextDatasource(f"s3://data/{path}?{query}")) == [{"text": "hi"}]

    def test_parquet(self, s3):
        pq.write_table(
            pa.table({"id": np.arange(100)}), "data/tables/0.parquet", filesystem=s3, row_group_size=10
        )
        source = ParquetDatasource("data/tables", filesystem=s3)
        assert source.row_count() == 100
        assert [row["id"] for row in rows(source, 4)] == list(range(100))

    def test_a_missing_path(self, s3):
        filesystem, paths = resolve("s3://data/nothing", s3)
        with pytest.raises(FileNotFoundError, match="data/nothing"):
            expand(filesystem, paths)


def test_no_more_files_are_opened_ahead_than_allowed(memory, monkeypatch):
    started, lock = [], threading.Lock()

    def open_stream(filesystem, file, *options):
        with lock:
            started.append(file.path)

    monkeypatch.setattr(opening, "open_stream", open_stream)
    filesystem, _ = resolve("memory://x")
    files = [File(str(index), 40 * 1024 * 1024) for index in range(50)]
    for read, (_, opener) in enumerate(opening.opened(filesystem, files, {}), start=1):
        opener()
        with lock:
            assert len(started) <= read + 2  # 64 MiB are two of them
    assert sorted(started, key=int) == [file.path for file in files]
