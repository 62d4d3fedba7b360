"""FastAPI applications whose routes are methods of the deployment's class."""

import asyncio
import json
import pickle
import subprocess
import sys

import pytest
from fastapi import APIRouter, Depends, FastAPI, WebSocket
from fastapi.testclient import TestClient  # noqa: F401 -- imports what a program's tests import
from pydantic import BaseModel

from runtime import cloudpickle
from runtime.serve import asgi
from tests.runtime.serve._replica.stand_in import serving


class Item(BaseModel):
    name: str
    values: list[float]


def deployment():
    app = FastAPI()
    router = APIRouter(prefix="/router")

    @asgi.ingress(app)
    class Items:
        def __init__(self, factor=2):
            self.factor = factor

        @app.post("/items/{item_id}", status_code=201, response_model=dict)
        async def item(self, item_id: int, item: Item, extra: str = "none"):
            return {"id": item_id, "name": item.name, "sum": self.factor * sum(item.values), "extra": extra}

        @app.get("/sync")
        def sync(self):
            return self.factor

        @router.get("/inner")
        async def inner(self):
            return f"inner {self.factor}"

        @app.websocket("/ws")
        async def socket(self, websocket: WebSocket):
            await websocket.accept()
            await websocket.send_text(f"factor {self.factor}")
            await websocket.close()

    def two():
        return 2

    @app.get("/function")
    async def function(x: int = Depends(two)):
        return x

    app.include_router(router)
    return Items


def check(make):
    async def main():
        async with serving(make(), 10) as (service, caller):
            body = b'{"name": "n", "values": [1, 2]}'
            kind = ((b"content-type", b"application/json"),)
            status, _, found = await caller.http(
                "/items/5", method="POST", body=body, headers=kind, query=b"extra=e"
            )
            assert (status, json.loads(found)) == (201, {"id": 5, "name": "n", "sum": 30.0, "extra": "e"})
            status, _, found = await caller.http("/items/five", method="POST", body=body, headers=kind)
            assert status == 422
            assert b"self" not in found
            assert (await caller.http("/sync"))[2] == b"10"
            assert (await caller.http("/function"))[2] == b"2"
            assert (await caller.http("/router/inner"))[2] == b'"inner 10"'
            schema = json.loads((await caller.http("/openapi.json"))[2])
            assert "/items/{item_id}" in schema["paths"]
            names = [p["name"] for p in schema["paths"]["/items/{item_id}"]["post"]["parameters"]]
            assert names == ["item_id", "extra"]
            assert service.user.app.docs_path == "/docs"
            number = await caller.begin_http("/ws", kind="websocket")
            events = [(await caller.next(number)).event for _ in range(3)]
            assert [event["type"].rpartition(".")[2] for event in events] == ["accept", "send", "close"]
            assert events[1]["text"] == "factor 10"

    asyncio.run(main())


def test_routes_are_methods():
    check(deployment)


def test_a_class_survives_pickling_with_its_application():
    data = cloudpickle.dumps(deployment())
    check(lambda: pickle.loads(data))


def test_routes_stay_methods_in_another_process():
    """There a class that came by value has no qualified name."""
    program = (
        "import sys\n"
        "from runtime import cloudpickle\n"
        "from runtime.serve import asgi\n"
        "from runtime.serve._replica.asgi_app import bind_methods\n"
        "cls = cloudpickle.loads(sys.stdin.buffer.read())\n"
        "source = asgi.source_of(cls)\n"
        "bind_methods(source.app, source.owners, cls())\n"
        "print(*[each.name for route in source.app.routes for each in route.dependant.body_params])\n"
        "print(*sorted(route.path for _, _, route in asgi.routes_of(source.app)))\n"
    )
    app = FastAPI(openapi_url=None)

    @asgi.ingress(app)
    class Local:
        @app.post("/here")
        def get(self, item: "Item"):
            return "here"

    command = [sys.executable, "-c", program]
    done = subprocess.run(command, input=cloudpickle.dumps(Local), capture_output=True, timeout=60)
    assert done.stdout.decode().split() == ["item", "/here"], done.stderr.decode()


def test_classes_that_share_an_application_have_their_own_routes():
    app = FastAPI()

    @asgi.ingress(app)
    class One:
        @app.get("/one")
        def get(self):
            return "one"

    @asgi.ingress(app)
    class Two:
        @app.get("/two")
        def get(self):
            return "two"

    async def main():
        async with serving(Two) as (_, caller):
            assert (await caller.http("/two"))[2] == b'"two"'
            assert (await caller.http("/one"))[0] == 404

    asyncio.run(main())


def test_routes_of_a_base_class_are_bound_too():
    app = FastAPI()

    class Base:
        @app.get("/base")
        def get(self):
            return self.name

    @asgi.ingress(app)
    class Derived(Base):
        name = "derived"

    async def main():
        async with serving(Derived) as (_, caller):
            assert (await caller.http("/base"))[2] == b'"derived"'

    asyncio.run(main())


def test_an_application_that_the_class_builds():
    @asgi.ingress()
    class Late:
        def __init__(self):
            self.word = "late"

        def __serve_build_asgi_app__(self):
            app = FastAPI()
            app.get("/")(lambda: self.word)
            return app

    async def main():
        async with serving(Late) as (_, caller):
            assert (await caller.http("/"))[2] == b'"late"'

    asyncio.run(main())


def test_what_cannot_be_an_ingress_is_refused():
    with pytest.raises(ValueError, match="must be used with a class"):
        asgi.ingress(FastAPI())(lambda: None)
    with pytest.raises(ValueError, match="__call__"):
        asgi.ingress(FastAPI())(type("A", (), {"__call__": lambda self: None}))
    with pytest.raises(ValueError, match="__serve_build_asgi_app__"):
        asgi.ingress()(type("A", (), {}))


def test_an_error_of_a_route_is_answered_by_the_application():
    app = FastAPI()

    @asgi.ingress(app)
    class Fails:
        @app.get("/")
        def get(self):
            raise ValueError("broken")

    async def main():
        async with serving(Fails) as (service, caller):
            assert (await caller.http("/"))[0] == 500
            assert service.ongoing == 0

    asyncio.run(main())
