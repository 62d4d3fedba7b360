"""The head's API over real HTTP, with the real control store in this process."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import json
import pathlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import uvicorn
from starlette.requests import Request

from clusterctl.api_client import Answer, ApiClient
from clusterctl.errors import CliError, Denied, NotFound, Unreachable, UsageProblem
from clusterctl.head import jobs
from clusterctl.head.api import Api
from clusterctl.head.jobs import JobError, JobSupervisor
from clusterctl.head.server import _Server
from clusterctl.jobs import client as jobs_client
from clusterctl.jobs.package import manifest, pack
from clusterctl.jobs.records import JobRecord, JobRequest, JobStatus
from clusterctl.spec.definition import ClusterSpec
from runtime._clients.control import ControlClient
from runtime._control.server import ControlStore
from runtime._control.storage import Storage, open_storage
from runtime._core.environments import PACKAGES, package_key, package_uri
from runtime._transport.channel import CallError, Channel, Handler, LoopbackChannel
from runtime._wire.messages.base import NodeInfo
from runtime._wire.messages.control import ClusterState, KvKeys, KvPut, WatchClusterState
from tests.polling import eventually
from tests.processes import is_alive

SECRET = "s" * 64


class Recorder:
    """Takes the specs that the API passes on."""

    def __init__(self) -> None:
        self.specs: list[ClusterSpec] = []
        self.steps: dict[str, str] = {}

    async def reconfigure(self, spec: ClusterSpec) -> None:
        self.specs.append(spec)


class Service:
    """A served API and a client of it whose calls run in threads."""

    def __init__(self, url: str, scaling: Recorder, supervisor: JobSupervisor) -> None:
        self.url = url
        self.scaling = scaling
        self.supervisor = supervisor

    async def use(self, call: Callable[[ApiClient], Any], secret: str = SECRET) -> Any:
        def run() -> Any:
            api = ApiClient(self.url, secret, "c")
            try:
                return call(api)
            finally:
                api.close()

        return await asyncio.to_thread(run)


@contextlib.asynccontextmanager
async def serving(
    tmp_path: pathlib.Path, storage: Storage | None = None, limit: int | None = None
) -> AsyncIterator[Service]:
    store = ControlStore(storage or open_storage(":memory:"), str(tmp_path))
    await store.start()

    async def connect(handler: Handler) -> Channel:
        ours, theirs = LoopbackChannel.pair(handler, None)
        store.attach(theirs)
        return ours

    control = ControlClient(connect)
    await control.start()
    tasks: set[asyncio.Task[None]] = set()

    def spawn(work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    supervisor = JobSupervisor(control, str(tmp_path), {"PATH": "/usr/bin:/bin"}, spawn, limit)
    await supervisor.recover()
    scaling = Recorder()
    api = Api(control, supervisor, scaling, "c")
    listener = socket.create_server(("127.0.0.1", 0))
    server = _Server(
        uvicorn.Config(api.application(SECRET), log_config=None, access_log=False, lifespan="off")
    )
    served = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield Service(f"http://127.0.0.1:{listener.getsockname()[1]}", scaling, supervisor)
    finally:
        await supervisor.close()
        await asyncio.gather(*tasks)
        server.end()
        await served
        listener.close()
        await control.close()
        await store.stop()


def run(
    tmp_path: pathlib.Path, test: Callable[[Service], Awaitable[None]], storage: Storage | None = None
) -> None:
    async def whole() -> None:
        async with serving(tmp_path, storage) as service:
            await test(service)

    asyncio.run(whole())


def test_nothing_but_health_without_the_secret(tmp_path: pathlib.Path) -> None:
    async def test(service: Service) -> None:
        assert await service.use(lambda api: api.get("/api/healthz"), secret="wrong") == {"ok": True}
        for path in ("/api/version", "/api/jobs/", "/api/openapi.json", "/nowhere", "/api/healthz/"):
            with pytest.raises(Denied):
                await service.use(lambda api, path=path: api.get(path), secret="wrong")  # type: ignore[misc]
        assert (await service.use(lambda api: api.get("/api/version")))["cluster_name"] == "c"

    run(tmp_path, test)


def test_openapi_describes_every_route(tmp_path: pathlib.Path) -> None:
    async def test(service: Service) -> None:
        description = await service.use(lambda api: api.get("/api/openapi.json"))
        assert description["openapi"].startswith("3.")
        assert set(description["paths"]["/api/jobs/"]) == {"get", "post"}
        assert description["paths"]["/api/healthz"]["get"]["security"] == []
        assert json.dumps(description).count("operationId") == 21

    run(tmp_path, test)


def test_a_job_with_its_package(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "hello.txt").write_text("hello\n")

    async def test(service: Service) -> None:
        package = pack(str(folder), manifest(str(folder)))
        assert await service.use(lambda api: jobs_client.upload(api, package)) is True
        assert await service.use(lambda api: jobs_client.upload(api, package)) is False
        runtime_env = {"working_dir": package_uri(package.digest), "env_vars": {"GIVEN": "g"}}
        name = await service.use(
            lambda api: jobs_client.submit(api, "cat hello.txt; echo $GIVEN; exit 5", runtime_env, None)
        )
        written: list[bytes] = []
        record = await service.use(lambda api: jobs_client.follow_to_end(api, name, written.append))
        assert b"".join(written) == b"hello\ng\n"
        assert (record.status, record.driver_exit_code) == (JobStatus.FAILED, 5)
        assert (await service.use(lambda api: api.get(f"/api/jobs/{name}/logs")))["logs"] == "hello\ng\n"
        assert not (tmp_path / "jobs" / name).exists()
        assert (await service.use(lambda api: api.delete(f"/api/jobs/{name}"))) == {"deleted": True}
        with pytest.raises(NotFound):
            await service.use(lambda api: jobs_client.get(api, name))

    run(tmp_path, test)


def test_output_is_read_from_any_offset(tmp_path: pathlib.Path) -> None:
    async def test(service: Service) -> None:
        await service.use(
            lambda api: api.post("/api/jobs/", {"entrypoint": "printf 0123456789", "submission_id": "j"})
        )
        await service.supervisor.wait_final("j", 30.0)

        def read(offset: int) -> Callable[[ApiClient], Answer]:
            return lambda api: api.request("GET", "/api/jobs/j/logs", query={"offset": offset})

        answer = await service.use(read(4))
        assert answer.body == b"456789"
        assert answer.headers["x-next-offset"] == "10"
        assert answer.headers["x-job-ended"] == "1"
        assert (await service.use(read(99))).body == b""

    run(tmp_path, test)


def test_stopping_ends_all_processes_even_stubborn_ones(tmp_path: pathlib.Path) -> None:
    async def test(service: Service) -> None:
        script = "trap '' TERM; (trap '' TERM; echo $$ > pid; exec sleep 300) & echo up; sleep 300; sleep 300"
        await service.use(lambda api: api.post("/api/jobs/", {"entrypoint": script, "submission_id": "s"}))
        assert await asyncio.to_thread(eventually, lambda: b"up" in service.supervisor.read_log("s", 0, 100))
        answer = await service.use(
            lambda api: api.request("POST", "/api/jobs/s/stop", body=b"", timeout_s=20.0).json()
        )
        assert answer == {"stopped": True}
        assert service.supervisor.get("s").status is JobStatus.STOPPED

    run(tmp_path, test)


def test_stopping_ends_what_left_the_jobs_process_group_too(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "daemon"

    async def test(service: Service) -> None:
        script = f"(setsid sh -c 'echo $$ > {file}; exec sleep 300' &); sleep 300"
        await service.use(lambda api: api.post("/api/jobs/", {"entrypoint": script, "submission_id": "d"}))
        assert await asyncio.to_thread(eventually, lambda: file.exists() and file.read_text().strip())
        pid = int(file.read_text())
        stop = "/api/jobs/d/stop"
        await service.use(lambda api: api.request("POST", stop, body=b"", timeout_s=20.0).json())
        assert await asyncio.to_thread(eventually, lambda: not is_alive(pid))

    run(tmp_path, test)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "entrypoint"),
        ({"entrypoint": " "}, "empty"),
        ({"entrypoint": "x", "submission_id": "../x"}, "no valid job id"),
        ({"entrypoint": "x", "runtime_env": {"pip": 5}}, "pip"),
        ({"entrypoint": "x", "runtime_env": {"working_dir": "s3://b"}}, "working_dir"),
        ({"entrypoint": "x", "runtime_env": {"working_dir": "/tmp"}}, "not a valid URI"),
    ],
)
def test_wrong_requests(tmp_path: pathlib.Path, body: dict[str, Any], message: str) -> None:
    async def test(service: Service) -> None:
        with pytest.raises(UsageProblem, match=message):
            await service.use(lambda api: api.post("/api/jobs/", body))

    run(tmp_path, test)


def test_ids_are_unique_and_packages_must_exist(tmp_path: pathlib.Path) -> None:
    async def test(service: Service) -> None:
        job = {"entrypoint": "true", "submission_id": "j"}
        await service.use(lambda api: api.post("/api/jobs/", job))
        with pytest.raises(CliError, match="already"):
            await service.use(lambda api: api.post("/api/jobs/", job))
        missing = {"entrypoint": "true", "runtime_env": {"working_dir": package_uri("0" * 64)}}
        with pytest.raises(NotFound, match="package"):
            await service.use(lambda api: api.post("/api/jobs/", missing))
        await service.supervisor.wait_final("j", 30.0)

    run(tmp_path, test)


def test_a_package_stays_until_its_job_has_ended(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def uploads_are_kept(seconds: float) -> None:
        monkeypatch.setenv("RAY_RUNTIME_ENV_TEMPORARY_REFERENCE_EXPIRATION_S", str(seconds))

    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.txt").write_text("7")
    package = pack(str(tmp_path / "files"), manifest(str(tmp_path / "files")))
    key = package_key(package.digest)

    async def gone(service: Service) -> bool:
        key_list = await service.supervisor._control.call(KvKeys(PACKAGES))
        return key.encode() not in key_list.keys

    async def until_gone(service: Service) -> None:
        async with asyncio.timeout(60):
            while not await gone(service):  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0.02)

    async def test(service: Service) -> None:
        uploads_are_kept(600.0)
        await service.use(lambda api: jobs_client.upload(api, package))
        assert not await gone(service)
        uploads_are_kept(0.1)
        await service.use(lambda api: jobs_client.upload(api, package))
        await until_gone(service)  # no job came
        uploads_are_kept(600.0)
        await service.use(lambda api: jobs_client.upload(api, package))
        job = {
            "entrypoint": "cat a.txt; sleep 300",
            "submission_id": "j",
            "runtime_env": {"working_dir": package_uri(package.digest)},
        }
        await service.use(lambda api: api.post("/api/jobs/", job))
        uploads_are_kept(0.1)
        await service.use(lambda api: jobs_client.upload(api, package))
        await asyncio.sleep(0.5)  # longer than an upload waits
        assert not await gone(service)
        await service.use(lambda api: api.request("POST", "/api/jobs/j/stop", body=b"", timeout_s=20.0))
        await until_gone(service)

    run(tmp_path, test)


def test_a_package_must_have_the_digest_of_its_name(tmp_path: pathlib.Path) -> None:
    async def test(service: Service) -> None:
        digest = hashlib.sha256(b"data").hexdigest()
        with pytest.raises(UsageProblem, match="digest"):
            await service.use(lambda api: api.put(f"/api/packages/gcs/{package_key(digest)}", b"other"))
        assert (await service.use(lambda api: api.put(f"/api/packages/gcs/{package_key(digest)}", b"data")))[
            "sha256"
        ] == digest

    run(tmp_path, test)


def test_a_job_that_ran_when_the_head_ended_has_failed(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "state.sqlite")

    async def first(service: Service) -> None:
        job = {"entrypoint": "sleep 300", "submission_id": "j"}
        await service.use(lambda api: api.post("/api/jobs/", job))
        record = service.supervisor.get("j")
        await service.supervisor.stop("j")
        await service.supervisor.wait_final("j", 30.0)
        await service.supervisor._store(record)  # as it stood when a head was killed

    async def second(service: Service) -> None:
        record = service.supervisor.get("j")
        assert record.status is JobStatus.FAILED
        assert "restarted" in record.message

    run(tmp_path, first, open_storage(path))
    run(tmp_path, second, open_storage(path))


def test_status_and_new_specs(tmp_path: pathlib.Path) -> None:
    async def test(service: Service) -> None:
        status = await service.use(lambda api: api.get("/api/cluster_status"))
        assert (status["cluster_name"], status["nodes"], status["autoscaler"]) == ("c", [], None)
        spec = {
            "cluster_name": "c",
            "provider": {"type": "local"},
            "head_node_type": "h",
            "available_node_types": {"h": {}},
        }
        await service.use(lambda api: api.put("/api/autoscaler/config", json.dumps(spec).encode()))
        assert [item.head_node_type for item in service.scaling.specs] == ["h"]
        with pytest.raises(UsageProblem):
            await service.use(lambda api: api.put("/api/autoscaler/config", b"{}"))

    run(tmp_path, test)


def test_who_waits_for_nodes_hears_of_the_last_one_at_once() -> None:
    def state(version: int, *states: str) -> ClusterState:
        nodes = [NodeInfo(b"n", state, "", "", "", "", False, "", {}, {}, {}) for state in states]
        return ClusterState(version, 0.0, nodes, [], [], [])

    states = [state(7, "ALIVE"), state(8, "ALIVE", "DEAD"), state(9, "ALIVE", "DEAD", "ALIVE")]
    asked: list[tuple[int, bool]] = []

    class Control:
        async def call(self, message: WatchClusterState, timeout_s: float) -> ClusterState:
            asked.append((message.after_version, message.timeout_s > 0))
            return states[len(asked) - 1]

    def nodes(query: bytes) -> int:
        asked.clear()
        no_jobs = SimpleNamespace(list=tuple)
        api = Api(cast(ControlClient, Control()), cast(JobSupervisor, no_jobs), None, "c")
        answer = asyncio.run(api.status(Request({"type": "http", "query_string": query})))
        return len(json.loads(answer.body)["nodes"])

    assert nodes(b"nodes=2&wait_s=25") == 3
    assert asked == [(-1, False), (7, True), (8, True)]
    assert nodes(b"") == nodes(b"nodes=1&wait_s=25") == nodes(b"nodes=2") == 1


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(Unreachable, match="does not answer"):
        ApiClient(f"http://127.0.0.1:{port}", SECRET, "c").get("/api/version")


@pytest.mark.parametrize("lost", ["RUNNING", "SUCCEEDED"])
def test_a_job_of_which_the_control_store_does_not_hear_ends_and_nothing_of_it_runs(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    async def test(service: Service) -> None:
        control = service.supervisor._control
        call = control.call
        pids: list[int] = []

        async def refused(request: Any, *more: Any) -> Any:
            pids.extend(process.pid for process in service.supervisor._processes.values())
            if isinstance(request, KvPut) and f'"status":"{lost}"'.encode() in request.value:
                raise CallError("TIMEOUT", "it is away")
            return await call(request, *more)

        monkeypatch.setattr(control, "call", refused)
        seconds = "0" if lost == "SUCCEEDED" else "4321"
        request = {"entrypoint": f"sleep {seconds}", "submission_id": "lost"}
        await service.use(lambda api: api.post("/api/jobs/", request))
        await service.supervisor.wait_final("lost", 30.0)
        record = service.supervisor.get("lost")
        assert record.status.value == ("FAILED" if lost == "RUNNING" else lost)
        if lost == "RUNNING":
            assert "the control store did not hear what became of the job: it is away" in record.message
        assert not service.supervisor._processes
        assert not any(map(is_alive, pids))

    run(tmp_path, test)


def test_a_name_is_taken_from_the_first_moment_on(tmp_path: pathlib.Path) -> None:
    async def test(service: Service) -> None:
        wanted = JobRequest(entrypoint="true", submission_id="twice")
        answers = await asyncio.gather(
            service.supervisor.submit(wanted), service.supervisor.submit(wanted), return_exceptions=True
        )
        assert [type(answer) for answer in answers] == [JobRecord, JobError]
        await service.supervisor.wait_final("twice", 30.0)

    run(tmp_path, test)


def test_a_job_that_was_refused_was_never_there(tmp_path: pathlib.Path) -> None:
    async def test(service: Service) -> None:
        missing = f"gcs://_ray_pkg_{'0' * 64}.zip"
        wanted = JobRequest(entrypoint="true", submission_id="x", runtime_env={"working_dir": missing})
        with pytest.raises(JobError, match="there is no package"):
            await service.supervisor.submit(wanted)
        assert service.supervisor.list() == []

    run(tmp_path, test)


@pytest.mark.parametrize("step", [1, 0, -1], ids=["clock goes", "clock stands", "clock goes back"])
def test_jobs_beyond_the_limit_wait_in_order_and_survive_the_head(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    clock = itertools.count(1_795_757_865_594, step)
    monkeypatch.setattr(jobs, "_now_ms", lambda: next(clock))

    async def main() -> None:
        path = str(tmp_path / "state.sqlite")
        gate, ran = tmp_path / "gate", tmp_path / "ran"
        async with serving(tmp_path, open_storage(path), limit=1) as service:
            for name in ("one", "two", "three", "four"):
                wait = f"while [ ! -e {gate} ]; do sleep 0.02; done; echo {name} >> {ran}"
                await service.supervisor.submit(JobRequest(entrypoint=wait, submission_id=name))
            jobs_now = await service.use(lambda api: api.get("/api/jobs/"))
            waiting = {job["submission_id"]: job["message"] for job in jobs_now if job["status"] == "PENDING"}
            assert [waiting[name].partition(";")[0] for name in ("two", "three", "four")] == [
                f"waiting: number {place} in line" for place in (1, 2, 3)
            ]
            assert (
                await service.use(lambda api: api.request("POST", "/api/jobs/three/stop", body=b""))
            ).status == 200
            assert service.supervisor.get("three").status is JobStatus.STOPPED
            assert service.supervisor.get("four").message.startswith("waiting: number 2")
        gate.touch()
        async with serving(tmp_path, open_storage(path), limit=1) as service:
            for name in ("two", "four"):
                await service.supervisor.wait_final(name, 30.0)
            assert ran.read_text().split() == ["two", "four"]
            states = {record.submission_id: record.status for record in service.supervisor.list()}
        assert states == {
            "one": JobStatus.STOPPED,
            "two": JobStatus.SUCCEEDED,
            "three": JobStatus.STOPPED,
            "four": JobStatus.SUCCEEDED,
        }

    asyncio.run(main())
