"""A server of S3; and what libraries keep for the life of a process, before a test is looked at for leaks."""

from __future__ import annotations

from collections.abc import Iterator

import fsspec.asyn
import pyarrow.fs as pafs
import pytest

fsspec.asyn.get_loop()  # starts the thread that talks to servers


@pytest.fixture(scope="module")
def s3() -> Iterator[pafs.S3FileSystem]:
    """A server of S3, with the bucket "data"."""
    server_module = pytest.importorskip("moto.server")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    filesystem = pafs.S3FileSystem(
        access_key="a",
        secret_key="b",
        region="us-east-1",
        scheme="http",
        endpoint_override=f"{host}:{port}",
        allow_bucket_creation=True,
    )
    filesystem.create_dir("data")
    yield filesystem
    server.stop()
