"""Requests that end early: cancelled by their caller, by a client that goes away, by a timeout; and what user code sees."""

import asyncio
import http.client
import socket
import time

import httpx
import ray
from ray import serve
from ray.serve.exceptions import RequestCancelledError
from starlette.responses import StreamingResponse


@ray.remote(num_cpus=0)
class Journal:
    def __init__(self):
        self.lines = []

    def write(self, line):
        self.lines.append(line)

    def read(self):
        return self.lines


@serve.deployment(max_ongoing_requests=20)
class Slow:
    def __init__(self, journal):
        self.journal = journal

    async def wait(self, name):
        await self.journal.write.remote(f"{name} begins")
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            self.journal.write.remote(f"{name} cancelled")
            raise

    async def stream(self, name):
        try:
            for number in range(100_000):
                yield number
                await asyncio.sleep(0.02)
        finally:
            self.journal.write.remote(f"{name} ends")

    async def __call__(self, request):
        name = request.query_params["name"]
        if "stream" in request.query_params:
            return StreamingResponse((f"{number}\n" async for number in self.stream(name)))
        await self.wait(name)

    async def quick(self, value):
        return value


@serve.deployment
class Front:
    def __init__(self, slow, journal):
        self.slow = slow
        self.journal = journal

    async def through(self, name):
        try:
            await self.slow.wait.remote(f"{name}, below")
        except asyncio.CancelledError:
            self.journal.write.remote(f"{name} cancelled")
            raise

    async def bounded(self, name):
        response = self.slow.wait.remote(name)
        try:
            async with asyncio.timeout(0.5):
                await response
        except TimeoutError:
            return "too late"

    async def __call__(self, request):
        await self.through(request.query_params["name"])


with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    PORT = probe.getsockname()[1]
ray.init(num_cpus=4, log_to_driver=False)
serve.start(http_options={"host": "127.0.0.1", "port": PORT, "request_timeout_s": 3})
journal = Journal.remote()
front = serve.run(Front.bind(Slow.bind(journal), journal), name="front", route_prefix="/front")
slow = serve.run(Slow.bind(journal), name="slow", route_prefix="/slow")


def wrote(line):
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if line in ray.get(journal.read.remote()):
            return True
        time.sleep(0.02)
    return False


def outcome(response, **options):
    try:
        return response.result(**options)
    except RequestCancelledError:
        return "cancelled"
    except TimeoutError:
        return "timeout"


response = slow.wait.remote("a")
print("a:", wrote("a begins"), outcome(response, timeout_s=0.3))
response.cancel()
print("a:", wrote("a cancelled"), outcome(response))
response.cancel()
print("quick:", outcome(slow.quick.remote(5)))
done = slow.quick.remote(6)
print("done:", done.result(), done.cancel(), done.result())

response = front.through.remote("b")
print("b:", wrote("b, below begins"))
response.cancel()
print("b:", wrote("b cancelled"), wrote("b, below cancelled"))
print("bounded:", front.bounded.remote("c").result(), wrote("c begins"))

stream = slow.options(stream=True).stream.remote("d")
print("stream:", [next(stream) for _ in range(3)])
stream.cancel()
print("stream:", wrote("d ends"))

connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
connection.request("GET", "/front?name=e")
print("client:", wrote("e, below begins"))
connection.close()
print("client gone:", wrote("e cancelled"), wrote("e, below cancelled"))

connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
connection.request("GET", "/slow?name=f&stream=1")
answer = connection.getresponse()
print("streaming client:", answer.status, answer.readline())
answer.close()
connection.close()
print("streaming client gone:", wrote("f ends"))

answer = httpx.get(f"http://127.0.0.1:{PORT}/slow", params={"name": "g"}, timeout=60)
print("timeout:", answer.status_code, wrote("g cancelled"))


async def in_asyncio():
    response = slow.wait.remote("h")
    task = asyncio.ensure_future(_result(response))
    await asyncio.to_thread(wrote, "h begins")
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return "cancelled"


async def _result(response):
    return await response


print("a cancelled task:", asyncio.run(in_asyncio()))
lines = ray.get(journal.read.remote())
print(sorted(line for line in lines if line.endswith("begins")))
serve.shutdown()
