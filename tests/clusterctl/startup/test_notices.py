"""Notices as machines read them, over HTTP."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import msgspec
import pytest

from clusterctl.providers.aws.metadata import NOTICES as AWS
from clusterctl.providers.gcp.metadata import NOTICES as GCP
from clusterctl.startup import notices
from clusterctl.startup.notices import Source
from tests.polling import eventually
from tests.testbed.metadata import MetadataServer

SOURCES = {"aws": AWS, "gcp": GCP}


@pytest.fixture
def metadata() -> Iterator[MetadataServer]:
    with MetadataServer() as server:
        yield server


def waiting(source: Source, server: str) -> threading.Thread:
    here = msgspec.structs.replace(source, server=server)
    told = msgspec.json.decode(msgspec.json.encode(here), type=Source)  # as it travels
    thread = threading.Thread(target=notices.wait, args=(told, 0.02), name="waits for notice")
    thread.start()
    return thread


@pytest.mark.parametrize("cloud", sorted(SOURCES))
def test_a_notice_ends_the_wait(metadata: MetadataServer, cloud: str) -> None:
    thread = waiting(SOURCES[cloud], metadata.server)
    assert eventually(lambda: len(metadata.asked) >= 2)
    assert thread.is_alive()
    metadata.give_notice()
    thread.join(60)
    assert not thread.is_alive()


@pytest.mark.parametrize("cloud", sorted(SOURCES))
def test_a_notice_that_was_given_before_is_read(metadata: MetadataServer, cloud: str) -> None:
    metadata.give_notice()
    thread = waiting(SOURCES[cloud], metadata.server)
    thread.join(60)
    assert not thread.is_alive()


def test_googles_server_is_asked_once_for_each_change(metadata: MetadataServer) -> None:
    thread = waiting(GCP, metadata.server)
    assert eventually(lambda: len(metadata.asked) == 2)
    metadata.give_notice()
    thread.join(60)
    assert len(metadata.asked) == 2, "the second question was answered by the notice"


def test_the_machine_goes_when_the_notice_says() -> None:
    notice = '{"action": "terminate", "time": "2017-09-18T08:22:00Z"}'
    assert notices.goes_at(AWS, notice, 10.0) == 1505722920.0
    for other in ("soon", "{}", '{"time": "soon"}', '{"time": 5}'):
        assert notices.goes_at(AWS, other, 10.0) == 130.0
    assert notices.goes_at(GCP, "TRUE", 10.0) == 40.0


@pytest.mark.parametrize("cloud", sorted(SOURCES))
def test_a_server_that_comes_late_is_waited_for(cloud: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as refusing:
        address = f"127.0.0.1:{refusing.getsockname()[1]}"
        thread = waiting(SOURCES[cloud], address)
        for _ in range(2):
            stream, _ = refusing.accept()
            stream.close()
        assert thread.is_alive()
        stream, _ = refusing.accept()
        with stream:
            for text in (b"a-token", b"TRUE")[0 if cloud == "aws" else 1 :]:
                stream.recv(4096)
                stream.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))
        thread.join(60)
        assert not thread.is_alive()
