"""gRPC through a real server and a real channel."""

from __future__ import annotations

import pickle
import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

grpc = pytest.importorskip("grpc")

from runtime.serve._core.published import Route, Routes
from runtime.serve._ingress import grpc_api
from runtime.serve._ingress.grpc_app import load_services
from runtime.serve._ingress.grpc_server import GrpcServer
from runtime.serve._ingress.options import GrpcOptions
from tests.runtime.serve._ingress.conftest import Served
from tests.runtime.serve._ingress.talk import FUNCTION, TalkStub, say


class Client:
    def __init__(self, served: Served, **options: Any) -> None:
        self.served = served
        given = GrpcOptions(port=0, grpc_servicer_functions=[FUNCTION], **options)
        self.server = GrpcServer(given, served.table, served.caller.queue, pickle.loads)
        self.port = served.run(self.server.start("127.0.0.1"))
        self.channel = grpc.insecure_channel(f"127.0.0.1:{self.port}")
        self.talk = TalkStub(self.channel)

    def close(self) -> None:
        self.channel.close()
        self.served.run(self.server.drain(0))


@pytest.fixture
def client(serve: Callable[..., Served]) -> Iterator[Callable[..., Client]]:
    begun: list[Client] = []

    def start(**options: Any) -> Client:
        begun.append(Client(serve(), **options))
        return begun[-1]

    yield start
    for one in begun:
        one.close()


def failure(call: Callable[[], Any]) -> Any:
    with pytest.raises(grpc.RpcError) as failed:
        call()
    return failed.value


def test_one_to_one(client: Callable[..., Client]) -> None:
    talk = client().talk
    metadata = (("application", "app"), ("request_id", "mine"), ("multiplexed_model_id", "-m1"))
    answer, call = talk.Say.with_call(say("hello"), metadata=metadata, timeout=20)
    assert answer.value == "HELLO-m1"
    assert dict(call.trailing_metadata()) == {"request_id": "mine", "length": "5"}
    _, call = talk.Say.with_call(say(""), metadata=metadata[:1], timeout=20)
    assert len(dict(call.trailing_metadata())["request_id"]) == 36


def test_streams(client: Callable[..., Client]) -> None:
    one = client()
    metadata = (("application", "app"),)
    call = one.talk.Count(say("300"), metadata=metadata, timeout=20)
    assert [item.value for item in call] == ["", *map(str, range(1, 300))]
    assert dict(call.trailing_metadata())["counted"] == "300"
    texts = [str(i) * 1000 for i in range(500)]
    answer = one.talk.Join(map(say, texts), metadata=metadata, timeout=20)
    assert answer.value == "".join(texts)
    answers = one.talk.Chat(map(say, "abc"), metadata=metadata, timeout=20)
    assert [item.value for item in answers] == ["a!", "b!", "c!"]
    one.served.until(one.served.is_idle)


def test_large_messages(client: Callable[..., Client]) -> None:
    options = [("grpc.max_receive_message_length", -1)]
    one = client()
    with grpc.insecure_channel(f"127.0.0.1:{one.port}", options) as channel:
        answer = TalkStub(channel).Say(say("x" * 10_000_000), metadata=(("application", "app"),), timeout=20)
    assert len(answer.value) == 10_000_000


def test_failures_have_their_status(client: Callable[..., Client]) -> None:
    one = client()
    code = grpc.StatusCode

    def fails(text: str, app: str = "app") -> tuple[Any, str]:
        metadata = (("application", app),) if app else ()
        error = failure(lambda: one.talk.Say(say(text), metadata=metadata, timeout=20))
        return error.code(), error.details()

    where = "Ping /ray.serve.RayServeAPIService/ListApplications for available applications."
    assert fails("x", "") == (code.NOT_FOUND, f"Application metadata not set. {where}")
    assert fails("x", "other") == (code.NOT_FOUND, f"Application 'other' not found. {where}")
    assert fails("fail") == (code.INTERNAL, "no")
    assert fails("coded") == (code.ALREADY_EXISTS, "it is there")
    assert fails("x", "full")[0] == code.RESOURCE_EXHAUSTED
    assert fails("x", "gone") == (code.UNAVAILABLE, "gone is unavailable because it failed to deploy.")
    assert failure(lambda: one.channel.unary_unary("/talk.Talk/Nothing")(b"")).code() == code.UNIMPLEMENTED
    one.served.until(one.served.is_idle)


def test_time_limits(client: Callable[..., Client]) -> None:
    one = client(request_timeout_s=0.05)
    metadata = (("application", "app"),)
    error = failure(lambda: one.talk.Say(say("hang"), metadata=metadata, timeout=20))
    assert (error.code(), error.details()) == (
        grpc.StatusCode.DEADLINE_EXCEEDED,
        "Request timed out after 0.05s.",
    )
    one.served.until(one.served.is_idle)
    assert one.served.replica.cancelled == 1


def test_a_client_that_leaves_cancels(client: Callable[..., Client]) -> None:
    one = client()
    metadata = (("application", "app"),)
    call = one.talk.Say.future(say("hang"), metadata=metadata)
    one.served.until(lambda: one.served.replica.running)
    call.cancel()
    one.served.until(one.served.is_idle)
    failure(lambda: one.talk.Say(say("hang"), metadata=metadata, timeout=0.05))
    one.served.until(one.served.is_idle)
    assert one.served.replica.cancelled == 2


def test_the_only_application_needs_no_name(client: Callable[..., Client]) -> None:
    one = client()
    one.served.table.update(Routes(2, [Route("/", "app", "d")]))
    assert one.talk.Say(say("a"), timeout=20).value == "A"
    one.served.table.update(Routes(3, [], {"app": "d"}))
    assert one.talk.Say(say("a"), timeout=20).value == "A"


def test_the_service_of_the_ingress(client: Callable[..., Client]) -> None:
    one = client()
    applications = one.channel.unary_unary(
        grpc_api.LIST_APPLICATIONS,
        grpc_api.ListApplicationsRequest.SerializeToString,
        grpc_api.ListApplicationsResponse.FromString,
    )
    healthz = one.channel.unary_unary(
        grpc_api.HEALTHZ, grpc_api.HealthzRequest.SerializeToString, grpc_api.HealthzResponse.FromString
    )
    names = applications(grpc_api.ListApplicationsRequest(), timeout=20).application_names
    assert list(names) == ["app", "busy", "full", "gone", "nested"]
    assert healthz(grpc_api.HealthzRequest(), timeout=20).message == "success"
    one.served.table.was_filled = False
    error = failure(lambda: healthz(grpc_api.HealthzRequest(), timeout=20))
    assert (error.code(), error.details()) == (
        grpc.StatusCode.UNAVAILABLE,
        "Route table is not populated yet.",
    )


def test_drain_lets_requests_end(client: Callable[..., Client]) -> None:
    one = client()
    call = one.talk.Say.future(say("hang"), metadata=(("application", "app"),))
    one.served.until(lambda: one.served.replica.running)
    assert one.served.run(one.server.drain(0.1)) == 1
    assert failure(call.result).code() in (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)
    one.served.until(one.served.is_idle)


def test_functions_that_cannot_be_loaded() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"nowhere\.at_all cannot be imported on the node"):
        load_services(["nowhere.at_all"])
    with pytest.raises(ValueError, match="is no function"):
        load_services(["os.path:sep"])
    assert load_services([FUNCTION]).names == ["talk.Talk"]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_tls(serve: Callable[..., Served], tmp_path: Any) -> None:
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    make = f"openssl req -x509 -newkey rsa:2048 -nodes -keyout {key} -out {cert} -days 1 -subj /CN=localhost"
    subprocess.run(
        [*make.split(), "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True
    )
    client = Client(serve(), ssl_keyfile=str(key), ssl_certfile=str(cert))
    with grpc.secure_channel(
        f"localhost:{client.port}", grpc.ssl_channel_credentials(cert.read_bytes())
    ) as channel:
        answer = TalkStub(channel).Say(say("hello"), metadata=(("application", "app"),), timeout=20)
    assert answer.value.startswith("HELLO")
    plain = failure(lambda: client.talk.Say(say("hello"), timeout=20))
    assert plain.code() is grpc.StatusCode.UNAVAILABLE
    client.close()
