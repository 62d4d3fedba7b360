"""The head's HTTP API: one table of routes, from which the application and its OpenAPI description are made.

Every route but /api/healthz asks for the cluster's secret as bearer token (in `Authorization` or `X-Ray-Authorization`)
before anything else of the request is read.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

import clusterctl
from clusterctl.jobs.package import LIMIT_BYTES
from clusterctl.jobs.records import JobRecord, JobRequest
from clusterctl.spec.definition import Autostop, ClusterSpec
from runtime._clients.control import ControlClient
from runtime._core.environments import parse_package_uri
from runtime._core.head_api import has_secret
from runtime._transport.channel import CallError
from runtime._wire.messages import control as messages
from runtime._wire.messages.base import ErrorKind

from . import bodies, views
from .jobs import JobError, JobSupervisor
from .remote_drivers import RemoteDrivers
from .serving import ServeGateway

LOG_CHUNK_BYTES = 2**20
MAX_WAIT_S = 30.0
_BODY_LIMIT_BYTES = 4 * 2**20
_POLL_S = 0.05
_CHANGES_S = 0.01
"""Between two looks at what changes."""
_HTTP_STATUS = {ErrorKind.NOT_FOUND: 404, ErrorKind.UNAVAILABLE: 503, ErrorKind.TIMEOUT: 504}


class Scaling(Protocol):
    """What the API asks of the autoscaler's owner."""

    @property
    def steps(self) -> Mapping[str, str]: ...

    async def reconfigure(self, spec: ClusterSpec) -> None: ...

    async def refresh(self) -> dict[str, str]: ...


class Ending(Protocol):
    """What the API asks of whoever ends the cluster when it is not used."""

    def set(self, policy: Autostop | None) -> None: ...

    def end_now(self, down: bool) -> None: ...

    def touch(self) -> None: ...

    async def state(self) -> dict[str, Any]: ...


class AutostopRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Another policy than the spec's. `idle_minutes` None: the cluster stays. `now`: it ends at once."""

    idle_minutes: Annotated[float, msgspec.Meta(ge=0)] | None = None
    down: bool = False
    now: bool = False


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One row of the route table."""

    method: str
    path: str
    summary: str
    run: Callable[[Request], Awaitable[Response]]


class Api:
    """The handlers. `scaling` and `ending` are None on a head without an autoscaler, `serving` where there is no
    Serve."""

    def __init__(
        self,
        control: ControlClient,
        jobs: JobSupervisor,
        scaling: Scaling | None,
        cluster_name: str,
        ending: Ending | None = None,
        serving: ServeGateway | None = None,
    ) -> None:
        self._serving = serving
        self._control = control
        self._jobs = jobs
        self._scaling = scaling
        self._ending = ending
        self._cluster_name = cluster_name
        self.remote_drivers: RemoteDrivers | None = None
        """The server for remote drivers, once the head knows whether there will be one."""

    def endpoints(self) -> list[Endpoint]:
        """The route table."""
        return [
            Endpoint("GET", "/api/healthz", "Whether the head answers. Needs no secret.", self.healthz),
            Endpoint("GET", "/api/version", "Versions, and which cluster this is.", self.version),
            Endpoint("GET", "/api/openapi.json", "This description.", self.openapi),
            Endpoint("POST", "/api/jobs/", "Submits a job.", self.submit),
            Endpoint("GET", "/api/jobs/", "All jobs.", self.jobs),
            Endpoint("GET", "/api/jobs/{id}", "One job.", self.job),
            Endpoint("DELETE", "/api/jobs/{id}", "Forgets a job that has ended.", self.delete_job),
            Endpoint("POST", "/api/jobs/{id}/stop", "Stops a job and all its processes.", self.stop_job),
            Endpoint(
                "GET",
                "/api/jobs/{id}/logs",
                "Output as JSON; with `offset` the bytes from there on, waiting up to `wait_s` for some.",
                self.job_logs,
            ),
            Endpoint("GET", "/api/packages/gcs/{package}", "Whether a package is there.", self.has_package),
            Endpoint("PUT", "/api/packages/gcs/{package}", "Uploads a package.", self.put_package),
            Endpoint("GET", "/api/nodes", "All nodes.", self.nodes),
            Endpoint(
                "GET",
                "/api/cluster_status",
                "Nodes, demand and the autoscaler's report; waits up to `wait_s` for `nodes` that are alive.",
                self.status,
            ),
            Endpoint("PUT", "/api/autoscaler/config", "New spec for the autoscaler.", self.configure),
            Endpoint(
                "PUT",
                "/api/workers/refresh",
                "Brings running workers the head's files and runs their setup commands; says by instance why not.",
                self.refresh,
            ),
            Endpoint(
                "GET", "/api/autostop", "When the cluster ends by itself, and what uses it.", self.autostop
            ),
            Endpoint("PUT", "/api/autostop", "Lets it end by itself, or not.", self.set_autostop),
            Endpoint(
                "GET",
                "/api/serve/applications/",
                "Everything that is served; `api_type`: imperative or declarative applications only.",
                self.serve_details,
            ),
            Endpoint("PUT", "/api/serve/applications/", "Deploys a configuration.", self.serve_deploy),
            Endpoint("DELETE", "/api/serve/applications/", "Ends everything that is served.", self.serve_end),
            Endpoint(
                "POST",
                "/api/v1/applications/{app}/deployments/{deployment}/scale",
                "Sets the number of replicas of a deployment that is scaled from outside.",
                self.serve_scale,
            ),
        ]

    def application(self, secret: str) -> ASGIApp:
        """The whole API as ASGI application."""
        routes = [Route(e.path, e.run, methods=[e.method]) for e in self.endpoints()]
        handlers: dict[Any, Any] = {JobError: _job_error, CallError: _call_error}
        return Authenticated(Starlette(routes=routes, exception_handlers=handlers), secret, self._touched)

    # -- about the head

    async def healthz(self, request: Request) -> Response:
        return JSONResponse({"ok": self._control.connected}, 200 if self._control.connected else 503)

    async def version(self, request: Request) -> Response:
        info = await self._control.call(messages.GetClusterInfo(), 5.0)
        return JSONResponse(
            {
                "version": clusterctl.__version__,
                "api_version": "1",
                "cluster_name": self._cluster_name,
                "cluster_id": info.cluster_id,
                "session_dir": info.session_dir,
                "remote_drivers": self.remote_drivers.listens_at if self.remote_drivers is not None else "",
                "python_version": info.python_version,
            }
        )

    async def openapi(self, request: Request) -> Response:
        return JSONResponse(describe(self.endpoints()))

    # -- jobs

    async def submit(self, request: Request) -> Response:
        try:
            wanted = msgspec.json.decode(await _body(request), type=JobRequest)
        except msgspec.MsgspecError as error:
            raise JobError(400, f"this is no job: {error}") from error
        record = await self._jobs.submit(wanted)
        return JSONResponse({"job_id": record.submission_id, "submission_id": record.submission_id})

    async def jobs(self, request: Request) -> Response:
        drivers = (await self._control.call(messages.ListJobs(), 10.0)).jobs
        return JSONResponse(views.jobs(self._jobs.list(), drivers))

    async def job(self, request: Request) -> Response:
        name = request.path_params["id"]
        drivers = (await self._control.call(messages.ListJobs(), 10.0)).jobs
        of_driver = [info.submission_id for info in drivers if info.job_id.hex() == name]
        record = self._jobs.get(of_driver[0] if of_driver and of_driver[0] else name)
        return JSONResponse(
            views.jobs([record], [d for d in drivers if d.submission_id == record.submission_id])[0]
        )

    async def delete_job(self, request: Request) -> Response:
        await self._jobs.delete(request.path_params["id"])
        return JSONResponse({"deleted": True})

    async def stop_job(self, request: Request) -> Response:
        stopped = await self._jobs.stop(request.path_params["id"])
        return JSONResponse({"stopped": stopped})

    async def job_logs(self, request: Request) -> Response:
        name = request.path_params["id"]
        self._jobs.get(name)
        if "offset" not in request.query_params:
            text = bodies.as_json_text(self._jobs.log_file(name), "logs")
            return StreamingResponse(text, media_type="application/json")
        offset = int(_number(request, "offset"))
        deadline = asyncio.get_running_loop().time() + min(_number(request, "wait_s"), MAX_WAIT_S)
        while True:
            record = self._jobs.get(name)
            data = self._jobs.read_log(name, offset, LOG_CHUNK_BYTES)
            if data or record.status.is_final or asyncio.get_running_loop().time() >= deadline:
                break
            await self._jobs.wait_final(name, _POLL_S)
        headers = {
            "X-Next-Offset": str(offset + len(data)),
            "X-Job-Status": record.status.value,
            "X-Job-Ended": str(int(record.status.is_final and len(data) < LOG_CHUNK_BYTES)),
        }
        return Response(data, headers=headers, media_type="application/octet-stream")

    # -- packages

    async def has_package(self, request: Request) -> Response:
        name, digest = _package(request)
        if not await self._jobs.has_package(name):
            raise JobError(404, f"there is no package {name}")
        return JSONResponse({"sha256": digest})

    async def put_package(self, request: Request) -> Response:
        name, digest = _package(request)
        try:
            async with bodies.spooled(request.stream(), self._jobs.uploads, LIMIT_BYTES) as body:
                if body.sha256 != digest:
                    raise JobError(400, "the package's bytes do not have the digest of its name")
                await self._jobs.put_package(name, body.path)
        except bodies.TooLong as error:
            raise JobError(413, str(error)) from error
        except OSError as error:
            raise JobError(507, f"the head cannot keep the package: {error}") from error
        return JSONResponse({"sha256": digest})

    # -- the cluster

    async def nodes(self, request: Request) -> Response:
        nodes = (await self._control.call(messages.GetNodes(), 10.0)).nodes
        return JSONResponse([views.node(node) for node in nodes])

    async def status(self, request: Request) -> Response:
        enough = _number(request, "nodes")
        clock = asyncio.get_running_loop().time
        deadline = clock() + min(_number(request, "wait_s"), MAX_WAIT_S)
        state = await self._control.call(messages.WatchClusterState(timeout_s=0.0), 10.0)
        while views.alive(state) < enough and (left := deadline - clock()) > 0:
            news = messages.WatchClusterState(state.version, left)
            state = await self._control.call(news, left + 10.0)
            await asyncio.sleep(_CHANGES_S)  # a busy cluster changes all the time
        steps = self._scaling.steps if self._scaling is not None else {}
        report = views.cluster_status(self._cluster_name, state, self._jobs.list(), steps)
        if self.remote_drivers is not None:
            report["remote_drivers"] = self.remote_drivers.report()
        return JSONResponse(report)

    async def configure(self, request: Request) -> Response:
        if self._scaling is None:
            raise JobError(400, "this head was started by hand and has no autoscaler")
        try:
            spec = msgspec.json.decode(await _body(request), type=ClusterSpec)
        except msgspec.MsgspecError as error:
            raise JobError(400, f"this is no cluster spec: {error}") from error
        try:
            await self._scaling.reconfigure(spec)
        except ValueError as error:
            raise JobError(400, f"the autoscaler cannot work with this spec: {error}") from error
        return JSONResponse({"accepted": True})

    async def autostop(self, request: Request) -> Response:
        return JSONResponse(await self._of_autoscaler().state())

    async def set_autostop(self, request: Request) -> Response:
        try:
            wanted = msgspec.json.decode(await _body(request), type=AutostopRequest)
        except msgspec.MsgspecError as error:
            raise JobError(400, f"this is no policy: {error}") from error
        ending = self._of_autoscaler()
        if wanted.now:
            ending.end_now(wanted.down)
        elif wanted.idle_minutes is None:
            ending.set(None)
        else:
            ending.set(Autostop(idle_minutes=wanted.idle_minutes, down=wanted.down))
        return JSONResponse({"accepted": True})

    def _of_autoscaler(self) -> Ending:
        if self._ending is None:
            raise JobError(400, "this head was started by hand and has no machines that it could end")
        return self._ending

    def _touched(self) -> None:
        if self._ending is not None:
            self._ending.touch()

    async def refresh(self, request: Request) -> Response:
        if self._scaling is None:
            raise JobError(400, "this head was started by hand and sets up no workers")
        return JSONResponse(await self._scaling.refresh())

    # -- serving

    async def serve_details(self, request: Request) -> Response:
        return await self._passed_on(request)

    async def serve_deploy(self, request: Request) -> Response:
        return await self._passed_on(request)

    async def serve_end(self, request: Request) -> Response:
        return await self._passed_on(request)

    async def serve_scale(self, request: Request) -> Response:
        return await self._passed_on(request)

    async def _passed_on(self, request: Request) -> Response:
        if self._serving is None:
            raise JobError(404, "this head does not serve")
        body = await _body(request)
        reply = await self._serving.ask(request.method, request.url.path, request.query_params, body)
        return Response(reply.text, reply.status, media_type=reply.content_type)


def _package(request: Request) -> tuple[str, str]:
    """The name of the package that a request is about, and the digest in it."""
    name = request.path_params["package"]
    parsed = parse_package_uri(f"gcs://{name}")
    if parsed is None:
        raise JobError(400, f"{name} is no name of a package: _ray_pkg_<sha256>.zip")
    return parsed


class Authenticated:
    """ASGI middleware: no route but the health check without the secret. `on_change` is told of every request that
    changes something."""

    def __init__(self, app: ASGIApp, secret: str, on_change: Callable[[], None] = lambda: None) -> None:
        self._app = app
        self._on_change = on_change
        self._secret = secret

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] != "/api/healthz":
            if not has_secret(self._secret, scope["headers"]):
                await JSONResponse({"error": "the cluster's secret is missing or wrong"}, 401)(
                    scope, receive, send
                )
                return
            if scope["method"] not in ("GET", "HEAD"):
                self._on_change()
        await self._app(scope, receive, send)


def describe(endpoints: list[Endpoint]) -> dict[str, Any]:
    """The OpenAPI description of a route table."""
    (request, record), components = msgspec.json.schema_components(
        [JobRequest, JobRecord], ref_template="#/components/schemas/{name}"
    )
    paths: dict[str, Any] = {}
    for endpoint in endpoints:
        names = [part[1:-1] for part in endpoint.path.split("/") if part.startswith("{")]
        operation: dict[str, Any] = {
            "summary": endpoint.summary,
            "operationId": endpoint.run.__name__,
            "parameters": [
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
            ],
            "responses": {
                "200": {"description": "OK"},
                "401": {"description": "The secret is missing or wrong."},
            },
        }
        if endpoint.path == "/api/healthz":
            operation["security"] = []
        if endpoint.run.__name__ == "submit":
            operation["requestBody"] = {"content": {"application/json": {"schema": request}}}
        if endpoint.run.__name__ == "job":
            operation["responses"]["200"]["content"] = {"application/json": {"schema": record}}
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "clusterctl head", "version": clusterctl.__version__},
        "security": [{"secret": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"secret": {"type": "http", "scheme": "bearer"}},
        },
    }


async def _body(request: Request, limit_bytes: int = _BODY_LIMIT_BYTES) -> bytes:
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > limit_bytes:
            raise JobError(413, f"the request is longer than {limit_bytes} bytes")
    return bytes(data)


def _number(request: Request, name: str) -> float:
    text = request.query_params.get(name, "0")
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 2**63:
        raise JobError(400, f"{name} must be a number that is not negative, got {text!r}")
    return value


async def _job_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, JobError)
    return Response(json.dumps({"error": error.message}), error.status, media_type="application/json")


async def _call_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, CallError)
    message = f"the control store: {error.message}"
    return JSONResponse({"error": message}, _HTTP_STATUS.get(error.kind, 500))
