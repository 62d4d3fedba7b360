"""HTTP requests and WebSockets through a replica, by real messages on a real socket."""

import asyncio
import json

import pytest
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Route, WebSocketRoute

from runtime.serve import asgi
from runtime.serve._wire.messages import WINDOW_BYTES, Cancel, Chunk, End, Event, Failure, Window
from tests.runtime.serve._replica.stand_in import serving, until


def plain(answer):
    async def answers(request):
        return answer(request)

    return answers


@pytest.mark.parametrize(
    ("value", "kind", "body"),
    [
        ("häh", b"text/plain; charset=utf-8", "häh".encode()),
        (b"\x00\xff", b"text/plain", b"\x00\xff"),
        (None, b"text/plain", b""),
        ({"a": [1, None]}, b"application/json", b'{"a":[1,null]}'),
        (7, b"application/json", b"7"),
    ],
)
def test_what_plain_code_returns_becomes_a_response(value, kind, body):
    async def main():
        async with serving(plain(lambda _: value)) as (_, caller):
            status, headers, got = await caller.http()
            assert (status, headers[b"content-type"], got) == (200, kind, body)
            assert headers[b"content-length"] == str(len(body)).encode()

    asyncio.run(main())


def test_arrays_become_json():
    numpy = pytest.importorskip("numpy")

    async def main():
        async with serving(plain(lambda _: {"x": numpy.arange(3), "y": numpy.float32(0.5)})) as (_, caller):
            assert json.loads((await caller.http())[2]) == {"x": [0, 1, 2], "y": 0.5}

    asyncio.run(main())


def test_a_request_is_starlettes():
    async def main():
        def answer(request):
            return {
                "method": request.method,
                "path": request.url.path,
                "query": dict(request.query_params),
                "header": request.headers["x-a"],
                "client": request.client.host,
            }

        async with serving(plain(answer)) as (_, caller):
            found = await caller.http("/a/b", method="PUT", query=b"q=1", headers=((b"x-a", b"yes"),))
            assert json.loads(found[2]) == {
                "method": "PUT",
                "path": "/a/b",
                "query": {"q": "1"},
                "header": "yes",
                "client": "1.2.3.4",
            }

    asyncio.run(main())


def test_code_without_parameters_and_sync_code_answer_too():
    async def main():
        class Sync:
            def __call__(self):
                return "sync"

        async with serving(Sync) as (_, caller):
            assert (await caller.http())[2] == b"sync"

    asyncio.run(main())


def test_errors_are_500_and_the_replica_goes_on():
    async def main():
        async def fail(request):
            raise ValueError("secret detail")

        async with serving(fail) as (service, caller):
            for _ in range(2):
                status, _, body = await caller.http()
                assert (status, body) == (500, b"Internal Server Error")
            assert service.ongoing == 0

    asyncio.run(main())


def test_a_body_in_parts_arrives_whole_and_is_acknowledged():
    async def main():
        async def size(request):
            body = await request.body()
            assert body is await request.body()
            assert b"".join([part async for part in request.stream()]) == body
            return f"{len(body)} {body[:2]} {body[-1:]}"

        async with serving(size) as (_, caller):
            number = await caller.begin_http(method="POST", body=b"ab", more=True)
            part, parts = b"x" * 200_000, 20
            for _ in range(parts):
                caller.connection.send(Chunk(number, part, True))
            caller.connection.send(Chunk(number, b"z", False))
            acknowledged, answers = 0, []
            while not (answers and isinstance(answers[-1], Chunk)):
                message = await caller.next(number)
                if type(message).__name__ == "Window":
                    acknowledged += message.size
                else:
                    answers.append(message)
            assert answers[-1].body == b"4000003 b'ab' b'z'"
            assert len(part) * parts - WINDOW_BYTES < acknowledged <= len(part) * parts

    asyncio.run(main())


def test_a_large_response_waits_for_its_reader():
    async def main():
        big = bytes(range(256)) * 40_000  # 10 MB

        async with serving(plain(lambda _: big)) as (_, caller):
            caller.reads = False
            number = await caller.begin_http()
            start = await caller.next(number)
            assert start.status == 200
            first = await caller.next(number)
            for _ in range(50):
                await asyncio.sleep(0)
            assert len(first.body) * (1 + caller.received[number].qsize()) <= 2 * WINDOW_BYTES
            caller.reads = True
            body = first.body + b"".join(
                caller.received[number].get_nowait().body for _ in range(caller.received[number].qsize())
            )

            caller.connection.send(Window(number, len(body)))
            while len(body) < len(big):
                body += (await caller.next(number)).body
            assert body == big

    asyncio.run(main())


def test_generators_and_streaming_responses_arrive_chunk_by_chunk():
    async def main():
        class Streams:
            async def __call__(self, request):
                kind = request.query_params["kind"]
                if kind == "response":
                    return StreamingResponse(self.items(), media_type="text/csv")
                return self.items() if kind == "async" else (f"{i}\n" for i in range(3))

            async def items(self):
                for i in range(3):
                    yield f"{i}\n"

        async with serving(Streams) as (_, caller):
            for kind in (b"response", b"async", b"sync"):
                number = await caller.begin_http(query=b"kind=" + kind)
                start = await caller.next(number)
                chunks = [await caller.next(number) for _ in range(4)]
                assert [chunk.body for chunk in chunks] == [b"0\n", b"1\n", b"2\n", b""]
                assert [chunk.more for chunk in chunks] == [True, True, True, False]
                expected = b"text/csv" if kind == b"response" else b"text/plain"
                assert dict(start.headers)[b"content-type"].startswith(expected)

    asyncio.run(main())


def test_a_client_that_is_gone_is_told_to_code_that_waits_for_it_and_cancels_other_code():
    async def main():
        seen = []

        async def app(scope, receive, send):
            if scope["type"] == "lifespan":
                return
            await receive()
            if scope["path"] == "/wait":
                seen.append(await receive())
                return
            try:
                seen.append("sleeps")
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise

        async with serving(asgi.ingress(app)()) as (service, caller):
            number = await caller.begin_http("/wait")
            await until(lambda: any(request._waiting for request in service._alive))
            caller.connection.send(Cancel(number))
            assert isinstance(await caller.next(number), Failure)
            assert seen == [{"type": "http.disconnect"}]
            number = await caller.begin_http("/sleep")
            await until(lambda: "sleeps" in seen)
            caller.connection.send(Cancel(number))
            assert (await caller.next(number)).kind == "cancelled"
            assert seen[1:] == ["sleeps", "cancelled"]

    asyncio.run(main())


def test_a_starlette_application_with_lifespan_background_tasks_and_root_path():
    async def main():
        seen = []

        async def lifespan(app):
            seen.append("up")
            yield {"model": 7}
            seen.append("down")

        import contextlib

        async def done():
            seen.append("background")

        async def answer(request):
            found = {
                "model": request.state.model,
                "path": request.scope["path"],
                "root": request.scope["root_path"],
            }
            return JSONResponse(found, background=BackgroundTask(done))

        app = Starlette(routes=[Route("/x", answer)], lifespan=contextlib.asynccontextmanager(lifespan))
        async with serving(asgi.ingress(app)()) as (_, caller):
            status, _, body = await caller.http("/prefix/x", root_path="/prefix")
            assert status == 200
            assert json.loads(body) == {"model": 7, "path": "/prefix/x", "root": "/prefix"}
            assert (await caller.http("/y"))[0] == 404
        assert seen == ["up", "background", "down"]

    asyncio.run(main())


def test_an_application_that_does_not_start_fails_the_replica():
    async def main():
        async def lifespan(app):
            raise ValueError("no model")
            yield

        import contextlib

        app = Starlette(lifespan=contextlib.asynccontextmanager(lifespan))
        with pytest.raises(RuntimeError, match="no model"):
            async with serving(asgi.ingress(app)()):
                pass

    asyncio.run(main())


def test_a_builder_is_called_in_the_replica():
    async def main():
        def build():
            async def answer(request):
                return PlainTextResponse("built")

            return Starlette(routes=[Route("/", answer)])

        async with serving(asgi.ingress(build)()) as (_, caller):
            assert (await caller.http())[2] == b"built"

    asyncio.run(main())


class Raw:
    """A deployment that is an ASGI application, without a framework."""

    def __init__(self, app):
        self.app = app

    async def __serve_build_asgi_app__(self):
        return self.app


def test_events_of_a_websocket_are_counted_both_ways():
    async def main():
        size = WINDOW_BYTES // 2

        async def app(scope, receive, send):
            if scope["type"] == "lifespan":
                return
            assert (await receive())["type"] == "websocket.connect"
            assert len((await receive())["bytes"]) == size
            for _ in range(4):
                await send({"type": "websocket.send", "bytes": bytes(size)})

        async with serving(asgi.ingress()(Raw), app) as (_, caller):
            number = await caller.begin_http("/", kind="websocket")
            caller.connection.send(Event(number, {"type": "websocket.receive", "bytes": bytes(size)}))
            assert await caller.next(number) == Window(number, size)
            for _ in range(2):
                assert len((await caller.next(number)).event["bytes"]) == size
            await asyncio.sleep(0)
            assert caller.received[number].empty(), "it has sent what its caller may not have room for"
            caller.connection.send(Window(number, 2 * size))
            for _ in range(2):
                assert len((await caller.next(number)).event["bytes"]) == size
            assert isinstance(await caller.next(number), End)

    asyncio.run(main())


def test_what_a_task_sends_after_the_end_of_its_request_goes_nowhere():
    async def main():
        errors = []

        async def app(scope, receive, send):
            if scope["type"] == "lifespan":
                return

            async def late(event):
                await asyncio.sleep(0.01)
                try:
                    await send(event)
                except (OSError, RuntimeError) as error:
                    errors.append(error)

            if scope["type"] == "http":
                tasks.append(asyncio.create_task(late({"type": "http.response.start", "status": 200})))
                raise ValueError("no")
            tasks.append(asyncio.create_task(late({"type": "websocket.send", "text": "late"})))

        tasks = []
        async with serving(asgi.ingress()(Raw), app) as (_, caller):
            assert isinstance(await caller.next(await caller.begin_http("/", kind="websocket")), End)
            assert isinstance(await caller.next(await caller.begin_http("/")), Failure)
            await asyncio.wait(tasks)
            assert len(errors) == 2
            assert caller.connection.is_open
            assert not any(queue.qsize() for queue in caller.received.values())

    asyncio.run(main())


def test_a_body_that_was_read_as_a_stream_cannot_be_read_again():
    async def main():
        async def answer(request):
            first = b"".join([part async for part in request.stream()])
            with pytest.raises(RuntimeError, match="Stream consumed"):
                await request.body()
            return first

        async with serving(answer) as (_, caller):
            assert (await caller.http(method="POST", body=b"abc"))[2] == b"abc"

    asyncio.run(main())


def test_a_websocket_talks_both_ways():
    async def main():
        async def talk(socket):
            await socket.accept(subprotocol="b")
            try:
                while True:
                    await socket.send_text("<" + await socket.receive_text() + ">")
            finally:
                gone.set()

        gone = asyncio.Event()
        app = Starlette(routes=[WebSocketRoute("/talk", talk)])
        async with serving(asgi.ingress(app)()) as (_, caller):
            number = await caller.begin_http("/talk", kind="websocket")
            accept = await caller.next(number)
            assert accept.event["type"] == "websocket.accept"
            assert accept.event["subprotocol"] == "b"
            for word in ("one", "two"):
                caller.connection.send(Event(number, {"type": "websocket.receive", "text": word}))
                assert (await caller.next(number)).event["text"] == f"<{word}>"
            caller.connection.send(Event(number, {"type": "websocket.disconnect", "code": 1000}))
            last = await caller.next(number)
            assert isinstance(last, Failure)
            assert last.kind == "cancelled"
            await asyncio.wait_for(gone.wait(), 10)

    asyncio.run(main())


def test_a_streaming_response_stops_when_its_client_is_gone():
    async def main():
        seen = []

        async def items():
            try:
                for _ in range(10_000):
                    yield b"x" * 10_000
                    await asyncio.sleep(0)
            finally:
                seen.append("closed")

        async def answer(request):
            return StreamingResponse(items())

        async with serving(answer) as (service, caller):
            caller.reads = False
            number = await caller.begin_http()
            for _ in range(5):
                await caller.next(number)
            caller.connection.send(Cancel(number))
            await until(lambda: not service.ongoing)
            last = None
            while not isinstance(last, Failure):
                last = await caller.next(number)
            assert last.kind == "cancelled"
            await until(lambda: seen)

    asyncio.run(main())


def test_unavailable_deployments_and_too_many_requests_are_told_to_the_client():
    from runtime.serve.context import DeploymentID
    from runtime.serve.exceptions import BackPressureError, DeploymentUnavailableError

    async def answer(request):
        if request.url.path == "/full":
            raise BackPressureError(3, 3, 429, 1.5)
        raise DeploymentUnavailableError(DeploymentID("Other", "app"))

    async def main():
        async with serving(answer) as (_, caller):
            status, headers, _ = await caller.http("/full")
            assert (status, headers[b"retry-after"]) == (429, b"2")
            assert (await caller.http("/gone"))[0] == 503

    asyncio.run(main())


def test_sync_code_runs_on_several_threads():
    import threading

    barrier = threading.Barrier(2, timeout=10)

    def answer(request):
        barrier.wait()
        return "both"

    async def main():
        async with serving(answer) as (_, caller):
            numbers = [await caller.begin_http() for _ in range(2)]
            assert [(await caller.response(number))[2] for number in numbers] == [b"both", b"both"]

    asyncio.run(main())


def test_sync_code_may_run_one_after_the_other(monkeypatch):
    import threading
    import time

    lock = threading.Lock()

    def answer(request):
        alone = lock.acquire(blocking=False)
        time.sleep(0.02)
        if alone:
            lock.release()
        return "alone" if alone else "together"

    async def main():
        monkeypatch.setenv("RAY_SERVE_RUN_SYNC_IN_THREADPOOL", "0")
        async with serving(answer) as (_, caller):
            numbers = [await caller.begin_http() for _ in range(3)]
            assert [(await caller.response(number))[2] for number in numbers] == [b"alone"] * 3

    asyncio.run(main())


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (200, [(b"a", b"b\r\nset-cookie: x=1")]),
        (200, [(b"a b", b"c")]),
        (200, [("a", "b")]),
        (99, []),
        (600, []),
        ("200", []),
    ],
)
def test_a_response_that_http_cannot_have_fails_and_others_go_on(status, headers):
    async def app(scope, receive, send):
        if scope["path"] == "/fine":
            await PlainTextResponse("fine")(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": status, "headers": headers})

    async def main():
        async with serving(asgi.ingress(app)(type("D", (), {}))) as (_, caller):
            message = await caller.next(await caller.begin_http())
            assert (type(message), message.kind) == (Failure, "user")
            assert (await caller.http("/fine"))[2] == b"fine"

    asyncio.run(main())


def test_a_body_of_text_fails_and_others_go_on():
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": "text" if scope["path"] == "/" else b"fine"})

    async def main():
        async with serving(asgi.ingress(app)(type("D", (), {}))) as (_, caller):
            number = await caller.begin_http()
            await caller.next(number)
            assert type(await caller.next(number)) is Failure
            assert (await caller.http("/fine"))[2] == b"fine"

    asyncio.run(main())
