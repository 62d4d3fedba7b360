"""What code finds out about where it runs: its replica, its application, its request; and who can reach whom by name."""

import asyncio
import logging
import re
import socket

import httpx
import ray
from fastapi import FastAPI, Request
from ray import serve
from ray.serve.context import _get_serve_request_context as request_context

api = FastAPI()


@serve.deployment(num_replicas=2, max_ongoing_requests=3)
class Inner:
    def __init__(self, label):
        self.label = label
        context = serve.get_replica_context()
        self.at_construction = (context.app_name, context.deployment)

    async def about(self):
        context = serve.get_replica_context()
        return {
            "app": context.app_name,
            "deployment": context.deployment,
            "at construction": self.at_construction,
            "tag has a form": bool(re.fullmatch(r"[a-z0-9]{6,}", context.replica_tag.split("#")[-1])),
            "is the object": context.servable_object is self,
            "id": (context.replica_id.deployment_id.name, context.replica_id.deployment_id.app_name),
            "label": self.label,
        }

    def request(self):
        context = request_context()
        return context.request_id, context.app_name

    async def tag(self):
        await asyncio.sleep(0.05)
        return serve.get_replica_context().replica_tag


@serve.deployment
@serve.ingress(api)
class Outer:
    def __init__(self, inner):
        self.inner = inner

    @api.get("/about")
    async def about(self):
        context = serve.get_replica_context()
        return [context.app_name, context.deployment, await self.inner.about.remote()]

    @api.get("/request")
    async def request(self, request: Request):
        context = request_context()
        inner_id, inner_app = await self.inner.request.remote()
        return {
            "id": context.request_id,
            "same below": inner_id == context.request_id,
            "apps": [context.app_name, inner_app],
            "header": request.headers.get("x-request-id"),
            "root": request.scope.get("root_path"),
            "path": request.url.path,
            "client": request.client.host,
            "query": dict(request.query_params),
        }

    @api.get("/neighbour")
    async def neighbour(self):
        other = serve.get_app_handle("other")
        return await other.greet.remote("from outside")

    @api.get("/log")
    async def log(self):
        logger = logging.getLogger("ray.serve")
        logger.info("a line of the application")
        return logger.name


@serve.deployment
class Other:
    async def greet(self, whom):
        return f"greetings {whom}"

    async def __call__(self, request):
        return request.url.path


with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    PORT = probe.getsockname()[1]
ray.init(num_cpus=16, log_to_driver=False)
serve.start(http_options={"host": "127.0.0.1", "port": PORT})
serve.run(Outer.bind(Inner.bind("red")), name="main", route_prefix="/main")
serve.run(Other.bind(), name="other", route_prefix="/main/other")
hidden = serve.run(Other.bind(), name="hidden", route_prefix=None)
client = httpx.Client(base_url=f"http://127.0.0.1:{PORT}", timeout=60)

app, deployment, inner = client.get("/main/about").json()
print("outer:", app, deployment)
for key, value in inner.items():
    print("inner:", key, value)
found = client.get("/main/request", params={"a": "1"}, headers={"x-request-id": "tour-17"})
for key, value in found.json().items():
    print("request:", key, value)
print("back:", found.headers["x-request-id"])
own = client.get("/main/request")
print("made:", own.headers["x-request-id"] == own.json()["id"], own.json()["header"] == own.json()["id"])
print("different:", client.get("/main/request").json()["id"] != own.json()["id"])
print("neighbour:", client.get("/main/neighbour").json(), "log:", client.get("/main/log").json())
print("longest prefix:", client.get("/main/other").text, client.get("/main/other/x/y").text)
print("similar prefix:", client.get("/mainly").status_code)
print("hidden:", client.get("/hidden").status_code, hidden.greet.remote("by handle").result())
print("routes:", dict(sorted(client.get("/-/routes").json().items())))

inner = serve.get_deployment_handle("Inner", app_name="main")
tags = set()
for _ in range(20):
    tags |= {each.result() for each in [inner.tag.remote() for _ in range(6)]}
print("two replicas answer:", len(tags))
try:
    serve.get_replica_context()
except Exception as error:
    print("outside of a replica:", type(error).__name__)
for name in ("main", "nobody"):
    try:
        handle = serve.get_app_handle(name)
        print("app handle:", handle.app_name, handle.deployment_name)
    except Exception as error:
        print("app handle:", type(error).__name__, name in str(error))
status = serve.status()
for name, details in sorted(status.applications.items()):
    states = {key: dict(each.replica_states) for key, each in sorted(details.deployments.items())}
    print(name, details.status.value, states)
print("proxies:", [state.value for state in status.proxies.values()])
serve.shutdown()
