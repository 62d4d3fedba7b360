"""Streams: over HTTP as they come, through handles, from one deployment through another, and with an error in the middle."""

import asyncio
import http.client
import json
import socket

import httpx
import ray
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from ray import serve
from ray.serve.handle import DeploymentResponseGenerator

api = FastAPI()


@ray.remote
class Gate:
    """What was let through; a stream that waits for it shows that chunks are not collected first."""

    def __init__(self):
        self.open = set()

    def let(self, number):
        self.open.add(number)

    def passed(self, number):
        return number in self.open


@serve.deployment
class Words:
    def sync_words(self, text):
        for word in text.split():
            yield word

    async def words(self, text):
        for word in text.split():
            await asyncio.sleep(0)
            yield word

    async def fails(self, after):
        for number in range(after):
            yield number
        raise ValueError(f"the source is empty after {after}")


@serve.deployment
@serve.ingress(api)
class Front:
    def __init__(self, words, gate):
        self.words = words.options(stream=True)
        self.gate = gate

    @api.get("/words")
    async def stream(self, text: str):
        async def relay():
            async for word in self.words.words.remote(text):
                yield word.upper() + "\n"

        return StreamingResponse(relay(), media_type="text/plain")

    @api.get("/gated")
    async def gated(self):
        async def chunks():
            for number in range(3):
                while not await self.gate.passed.remote(number):
                    await asyncio.sleep(0.01)
                yield f"chunk {number};"

        return StreamingResponse(
            chunks(), media_type="text/plain", status_code=203, headers={"x-kind": "gated"}
        )

    @api.get("/events")
    async def events(self, count: int):
        async def feed():
            for number in range(count):
                yield f"id: {number}\ndata: {json.dumps({'square': number * number})}\n\n"

        return StreamingResponse(feed(), media_type="text/event-stream")

    @api.get("/sync")
    def of_a_sync_generator(self):
        return StreamingResponse((bytes([65 + number]) * 3 for number in range(4)), media_type="text/plain")

    @api.get("/broken")
    async def broken(self):
        async def chunks():
            yield b"first,"
            yield b"second,"
            raise RuntimeError("the stream breaks")

        return StreamingResponse(chunks(), media_type="text/plain")

    @api.get("/large")
    async def large(self):
        async def chunks():
            for number in range(50):
                yield bytes([number]) * 100_000

        return StreamingResponse(chunks(), media_type="application/octet-stream")

    async def lengths(self, text):
        async for word in self.words.words.remote(text):
            yield len(word)


with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    PORT = probe.getsockname()[1]
ray.init(num_cpus=4, log_to_driver=False)
serve.start(http_options={"host": "127.0.0.1", "port": PORT})
gate = Gate.remote()
handle = serve.run(Front.bind(Words.bind(), gate), name="streams")
client = httpx.Client(base_url=f"http://127.0.0.1:{PORT}", timeout=60)

with client.stream("GET", "/words", params={"text": "a stream of words"}) as answer:
    print(answer.status_code, answer.headers["content-type"], list(answer.iter_lines()))
print("is chunked:", client.get("/words", params={"text": "x y"}).headers.get("transfer-encoding"))

connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
ray.get(gate.let.remote(0))
connection.request("GET", "/gated")
answer = connection.getresponse()
print("gated:", answer.status, answer.headers["x-kind"])
for number in range(3):
    print("  arrived:", answer.read(8).decode())
    ray.get(gate.let.remote(number + 1))
print("  the end:", answer.read())

with client.stream("GET", "/events", params={"count": 3}) as answer:
    events = [line for line in answer.iter_lines() if line.startswith("data: ")]
print("events:", answer.headers["content-type"], [json.loads(line[6:])["square"] for line in events])
print("sync:", client.get("/sync").text)
large = client.get("/large").content
print("large:", len(large), [large[number * 100_000] for number in (0, 17, 49)])
try:
    with client.stream("GET", "/broken") as answer:
        got = b""
        for chunk in answer.iter_raw():
            got += chunk
    print("broken: ended", got)
except httpx.RemoteProtocolError:
    print("broken:", answer.status_code, got.decode())

generator = handle.options(stream=True).lengths.remote("one three fifteen")
print("handle:", isinstance(generator, DeploymentResponseGenerator), next(generator), list(generator))
words = serve.get_deployment_handle("Words", app_name="streams").options(stream=True)
print("of a sync generator:", list(words.sync_words.remote("p q r")))
print("empty:", list(words.words.remote("")))


async def consume():
    return [word async for word in words.words.remote("in an event loop")]


print("async for:", asyncio.run(consume()))
got = []
try:
    for number in words.fails.remote(2):
        got.append(number)
except ValueError as error:
    print("fails:", got, "is empty after 2" in str(error))
many = [words.words.remote(f"s{number} t{number}") for number in range(5)]
print("several:", [list(each) for each in many])
not_streaming = serve.get_deployment_handle("Words", app_name="streams")
try:
    print(not_streaming.words.remote("a b").result(timeout_s=30))
except TypeError as error:
    print("without stream=True:", isinstance(error, ray.exceptions.RayTaskError))
serve.shutdown()
