"""The port of the head's API."""

from __future__ import annotations

import socket

import pytest

from clusterctl.head.first import HeadError, listen
from clusterctl.startup.config import HeadConfig


def test_what_it_accepts_sends_the_body_of_an_answer_at_once() -> None:
    with listen(HeadConfig(cluster_id="c-1", cluster_name="c", api_port=0)) as listener:
        listener.setblocking(True)
        with socket.create_connection(listener.getsockname()), listener.accept()[0] as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(HeadError, match=f"port {port} of 127.0.0.1 is in use"):
            listen(HeadConfig(cluster_id="c-1", cluster_name="c", api_port=port))
