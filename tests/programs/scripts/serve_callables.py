"""Kinds of deployments and answers: functions, sync and async methods, generators, and whatever can be a response."""

import asyncio
import socket
import threading

import httpx
import numpy as np
import ray
from ray import serve
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response


@serve.deployment
def length(request: Request):
    return len(request.query_params["text"])


@serve.deployment
async def method(request: Request) -> str:
    body = await request.body()
    return f"{request.method} {request.url.path} {len(body)}"


@serve.deployment
class Answers:
    async def __call__(self, request: Request):
        kind = request.query_params["kind"]
        return {
            "text": "plain text",
            "bytes": b"\x00\x01bytes",
            "dict": {"a": [1, 2.5, None, True], "b": "ü"},
            "list": [1, "two", {"three": 3}],
            "number": 42,
            "float": 0.5,
            "none": None,
            "bool": True,
            "html": HTMLResponse("<p>html</p>"),
            "json": JSONResponse([1], status_code=202),
            "redirect": RedirectResponse("/elsewhere"),
            "empty": Response(status_code=204),
            "header": Response("x", headers={"x-a": "1", "X-B": "two"}, media_type="text/csv"),
        }[kind]


@serve.deployment
class Requests:
    """What a request looks like from inside."""

    async def __call__(self, request: Request):
        form = {}
        if request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
            form = {
                key: value
                for key, value in (pair.split("=") for pair in (await request.body()).decode().split("&"))
            }
        return {
            "method": request.method,
            "path": request.url.path,
            "query": request.query_params.multi_items(),
            "cookies": request.cookies,
            "headers": {key: value for key, value in request.headers.items() if key.startswith("x-own")},
            "form": form,
            "version": request.scope["http_version"],
            "scheme": request.url.scheme,
        }


@serve.deployment(max_ongoing_requests=10)
class Mixed:
    def __init__(self):
        self.running = 0
        self.most = 0

    def sync(self, number):
        self.running += 1
        self.most = max(self.most, self.running)
        threading.Event().wait(0.2)
        self.running -= 1
        return number * number

    async def overlapping(self, number):
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0.2)
        self.running -= 1
        return -number

    def reset(self):
        most, self.most = self.most, 0
        return most

    def generator(self, count):
        for number in range(count):
            yield number

    async def kinds(self, *values, **named):
        return [type(value).__name__ for value in values], {
            key: type(value).__name__ for key, value in named.items()
        }

    def array(self, side):
        return np.arange(side * side, dtype=np.float32).reshape(side, side)

    def total(self, array):
        return float(array.sum()), array.shape, str(array.dtype)


with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    PORT = probe.getsockname()[1]
ray.init(num_cpus=8, log_to_driver=False)
serve.start(http_options={"host": "127.0.0.1", "port": PORT})
serve.run(length.bind(), name="length", route_prefix="/length")
serve.run(method.bind(), name="method", route_prefix="/method")
serve.run(Answers.bind(), name="answers", route_prefix="/answers")
serve.run(Requests.bind(), name="requests", route_prefix="/requests")
mixed = serve.run(Mixed.bind(), name="mixed", route_prefix=None)
client = httpx.Client(base_url=f"http://127.0.0.1:{PORT}", timeout=60)

print("function:", client.get("/length", params={"text": "abcdef"}).json())
print("async function:", client.put("/method/a/b", content=b"12345").text, "|", client.delete("/method").text)
for kind in (
    "text",
    "bytes",
    "dict",
    "list",
    "number",
    "float",
    "none",
    "bool",
    "html",
    "json",
    "redirect",
    "empty",
):
    answer = client.get("/answers", params={"kind": kind})
    print(f"{kind}:", answer.status_code, answer.headers.get("content-type"), answer.content)
answer = client.get("/answers", params={"kind": "header"})
print("header:", answer.headers["x-a"], answer.headers["x-b"], answer.headers["content-type"])
print("location:", client.get("/answers", params={"kind": "redirect"}).headers["location"])
client.cookies.set("taste", "sweet")
found = client.post(
    "/requests/deep%20er/", params=[("a", "1"), ("a", "2")], data={"f": "g"}, headers={"X-Own": "yes"}
)
for key, value in found.json().items():
    print("request:", key, value)

print("sync:", [each.result() for each in [mixed.sync.remote(number) for number in range(6)]])
print("in several threads:", mixed.reset.remote().result() > 1)
print("async:", [each.result() for each in [mixed.overlapping.remote(number) for number in range(6)]])
print("overlapping:", mixed.reset.remote().result() > 1)
print("generator:", list(mixed.options(stream=True).generator.remote(4)))
print("kinds:", mixed.kinds.remote(1, "a", None, b"", (1,), key={"a"}, other=np.float64(1)).result())
array = mixed.array.remote(600)
print("array:", mixed.total.remote(array).result(), array.result().shape)
print("large argument:", mixed.total.remote(np.ones((1500, 1000))).result())
serve.shutdown()
