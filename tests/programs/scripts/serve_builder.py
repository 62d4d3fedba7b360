"""Applications from functions with typed arguments; decorated, bound, with other options; several from one builder."""

import socket

import httpx
import ray
from fastapi import FastAPI
from pydantic import BaseModel, ValidationError
from ray import serve
from ray.serve import Application, Deployment
from ray.serve.exceptions import RayServeException


class Settings(BaseModel):
    unit: str
    factor: float = 1.0
    digits: int = 2
    replicas: int = 1


@serve.deployment
class Converter:
    def __init__(self, factor: float, *, digits: int):
        self.factor = factor
        self.digits = digits

    def __call__(self, value: float) -> float:
        return round(value * self.factor, self.digits)


@serve.deployment(name="Api")
class Api:
    def __init__(self, converter, unit):
        self.converter = converter
        self.unit = unit

    async def __call__(self, request):
        value = await self.converter.remote(float(request.query_params["value"]))
        return f"{value:g} {self.unit}"


def build(settings: Settings) -> Application:
    converter = Converter.options(num_replicas=settings.replicas, name=f"to-{settings.unit}")
    return Api.bind(converter.bind(settings.factor, digits=settings.digits), settings.unit)


def plain(arguments: dict) -> Application:
    return build(Settings(**arguments))


def with_routes(prefix: str) -> Application:
    """FastAPI made by a function, so that routes depend on arguments."""

    def make() -> FastAPI:
        app = FastAPI()

        @app.get(f"/{prefix}/{{name}}")
        def greet(name: str):
            return {prefix: name}

        return app

    @serve.deployment
    @serve.ingress(make())
    class Routed:
        pass

    return Routed.bind()


with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    PORT = probe.getsockname()[1]
ray.init(num_cpus=16, log_to_driver=False)
serve.start(http_options={"host": "127.0.0.1", "port": PORT})
base = f"http://127.0.0.1:{PORT}"

app = build(Settings(unit="miles", factor=0.621371))
print("types:", isinstance(app, Application), isinstance(Converter, Deployment), type(Api).__name__)
serve.run(app, name="miles", route_prefix="/miles")
serve.run(
    plain({"unit": "feet", "factor": "3.28084", "digits": 1, "replicas": 2}),
    name="feet",
    route_prefix="/feet",
)
serve.run(with_routes("hello"), name="routed", route_prefix="/routed")
for path in ("/miles?value=10", "/feet?value=2", "/routed/hello/you", "/routed/bye/you"):
    answer = httpx.get(base + path, timeout=60)
    print(path, answer.status_code, answer.text)
try:
    plain({"unit": "yards", "factor": "much"})
except ValidationError as error:
    print("wrong argument:", [each["loc"] for each in error.errors()])
try:
    Converter()
except RuntimeError:
    print("refused: called in place of bound")
for name, details in sorted(serve.status().applications.items()):
    print(name, sorted(details.deployments))

feet = serve.get_deployment_handle("to-feet", app_name="feet")
print("inner:", feet.remote(1).result())
changed = Converter.options(max_ongoing_requests=9, ray_actor_options={"num_cpus": 0.5}, user_config={"a": 1})
print(
    "options:",
    changed.max_ongoing_requests,
    changed.ray_actor_options["num_cpus"],
    changed.user_config,
    changed.name,
)
print("unchanged:", Converter.max_ongoing_requests, Converter.user_config, Converter.num_replicas)
print("function:", Converter.func_or_class.__name__)
try:
    serve.run(Converter)
except TypeError:
    print("refused: a deployment that is not bound")
try:
    serve.run(build(Settings(unit="x")), name="x", route_prefix="no/slash")
except ValueError:
    print("refused: a route without a slash")
try:
    serve.run(build(Settings(unit="y")), name="y", route_prefix="/feet")
except Exception as error:
    print("refused: a route that is taken", isinstance(error, RayServeException))


@serve.deployment
class Same:
    def __init__(self, *others):
        self.others = others

    async def number(self):
        return 1 + sum([await other.number.remote() for other in self.others])

    async def __call__(self, request):
        return await self.number()


leaf = Same.bind()
tree = Same.options(name="root").bind(Same.bind(leaf, leaf), Same.bind())
handle = serve.run(tree, name="tree", route_prefix="/tree")
print("tree:", handle.number.remote().result(), sorted(serve.status().applications["tree"].deployments))
serve.shutdown()
