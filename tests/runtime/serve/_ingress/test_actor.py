"""The ingress as an actor of a cluster, with the real caller; the replica is a stand-in of this process."""

from __future__ import annotations

import asyncio
import http.client
import socket
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("httptools")

import runtime as ray
from runtime._system import settings
from runtime.experimental.internal_kv import _internal_kv_list, _internal_kv_put
from runtime.serve._core import published
from runtime.serve._core.published import NAMESPACE, ROUTES, Route, Routes, Target, Targets, targets_key
from runtime.serve._event_loops import new_event_loop
from runtime.serve._ingress.actor import Ingress
from tests.polling import eventually
from tests.runtime.api.conftest import session
from tests.runtime.serve._ingress.stand_in import SLOTS, Replica

__all__ = ["session"]

new_event_loop().close()


@pytest.fixture
def replica(session: None) -> Iterator[Replica]:
    """Serves / of application "app" as the controller would have it."""
    loop = new_event_loop()

    def turn() -> None:
        asyncio.set_event_loop(loop)
        loop.run_forever()
        loop.close()

    thread = threading.Thread(target=turn)
    thread.start()
    replica, path = Replica(), "\0" + uuid.uuid4().hex
    asyncio.run_coroutine_threadsafe(replica.listen(path), loop).result(20)
    node = ray.get_runtime_context().get_node_id()
    targets = Targets(1, "running", [Target("app#d#1", b"", node, path, "", 0, SLOTS)])
    _internal_kv_put(targets_key("app", "d"), published.dump(targets), namespace=NAMESPACE)
    routes = Routes(1, [Route("/", "app", "d")])
    _internal_kv_put(ROUTES, published.dump(routes), namespace=NAMESPACE)
    yield replica

    async def end() -> None:
        replica.server.close()
        for connection in replica.lent:
            connection.close()
        await asyncio.sleep(0)

    asyncio.run_coroutine_threadsafe(end(), loop).result(20)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


def begin(**http_options: Any) -> tuple[Any, dict[str, Any]]:
    kind = ray.remote(Ingress).options(num_cpus=0, max_restarts=-1, max_concurrency=4)
    ingress = kind.remote(ray.get_runtime_context().get_node_id(), {})
    return ingress, ray.get(ingress.start.remote({"port": 0, **http_options}, {}), timeout=60)


def ask(port: int, path: str = "/") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def ask_until_answered(port: int) -> bytes:
    """Asks again while nobody listens; the time limit of the test ends it."""
    while True:
        try:
            status, body = ask(port)
        except OSError:
            continue
        if status == 200:
            return body


def is_there(ingress: Any) -> bool:
    try:
        ray.get(ingress.check_health.remote(), timeout=30)
    except ray.exceptions.RayActorError:
        return False
    return True


def test_a_killed_ingress_comes_back_on_its_port(replica: Replica) -> None:
    ingress, began = begin()
    assert began["host"] == "127.0.0.1"
    assert (began["grpc_port"], began["processes"]) == (None, 1)
    port = began["port"]
    assert ask_until_answered(port) == b"ok"
    assert ask(port, "/-/routes") == (200, b'{"/":"app"}')
    ray.get(ingress.check_health.remote(), timeout=30)
    with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert sock.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        ray.kill(ingress, no_restart=False)
        while sock.recv(1 << 16):
            pass  # until it is gone
    assert ask_until_answered(port) == b"ok"
    assert eventually(lambda: is_there(ingress))  # to this process, too
    assert ray.get(ingress.start.remote({"port": 0}, {}), timeout=30) == began
    assert ray.get(ingress.drain.remote(5), timeout=30) == 0
    with pytest.raises(ConnectionRefusedError):
        ask(port)
    assert _internal_kv_list(b"ingress\0", namespace=NAMESPACE) == []
    ray.kill(ingress)


def test_several_processes_share_the_port(replica: Replica) -> None:
    node = ray.get_runtime_context().get_node_id()
    kind = ray.remote(Ingress).options(num_cpus=0, max_concurrency=4)
    ingress = kind.remote(node, {})
    began = ray.get(ingress.start.remote({"port": 0}, {}, 2), timeout=60)
    assert began["processes"] == 2
    assert settings.SERVE_INGRESS_PROCESSES.get() == 1
    for _ in range(20):
        assert ask_until_answered(began["port"]) == b"ok"
    assert len(replica.lent) == 2  # both have connected to the replica
    ray.get(ingress.check_health.remote(), timeout=30)
    assert ray.get(ingress.drain.remote(5), timeout=30) == 0
    with pytest.raises(ConnectionRefusedError):
        ask(began["port"])
    ray.kill(ingress)


def test_grpc(replica: Replica) -> None:
    grpc = pytest.importorskip("grpc")
    from tests.runtime.serve._ingress.talk import FUNCTION, TalkStub, say

    kind = ray.remote(Ingress).options(num_cpus=0, max_concurrency=4)
    ingress = kind.remote(ray.get_runtime_context().get_node_id(), {})
    options = {"port": 0, "grpc_servicer_functions": [FUNCTION]}
    began = ray.get(ingress.start.remote({"host": None}, options), timeout=60)
    assert began["port"] is None
    with grpc.insecure_channel(f"127.0.0.1:{began['grpc_port']}") as channel:
        talk = TalkStub(channel)
        wait = {"timeout": 20, "wait_for_ready": True}
        call = None
        while call is None or call.code() is grpc.StatusCode.NOT_FOUND:  # until the routes have arrived
            call = talk.Say.future(say("a"), **wait)
            call.exception()
        assert call.result().value == "A"
        assert [item.value for item in talk.Count(say("3"), **wait)] == ["", "1", "2"]
        assert talk.Join(map(say, "abc"), **wait).value == "abc"
        assert [item.value for item in talk.Chat(map(say, "ab"), **wait)] == ["a!", "b!"]
        with pytest.raises(grpc.RpcError) as failed:
            talk.Say(say("fail"), **wait)
        assert (failed.value.code(), failed.value.details()) == (grpc.StatusCode.INTERNAL, "no")
    assert ray.get(ingress.drain.remote(5), timeout=30) == 0
    ray.kill(ingress)


def test_an_ingress_whose_grpc_cannot_start_gives_its_http_port_back(session: None) -> None:
    pytest.importorskip("grpc")
    from tests.runtime.serve._ingress.talk import FUNCTION

    with socket.create_server(("127.0.0.1", 0)) as taken, socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        kind = ray.remote(Ingress).options(num_cpus=0, max_concurrency=4)
        ingress = kind.remote(ray.get_runtime_context().get_node_id(), {})
        options = {"port": taken.getsockname()[1], "grpc_servicer_functions": [FUNCTION]}
        for _ in range(2):
            with pytest.raises(RuntimeError, match="gRPC server cannot listen"):
                ray.get(ingress.start.remote({"port": port}, options), timeout=60)
            with pytest.raises(ConnectionRefusedError):
                ask(port)
        ray.kill(ingress)


def test_wrong_options(session: None) -> None:
    with pytest.raises(ValueError, match="http_options: Expected `int"):
        begin(port="eighty")
