"""`util.state`: what there is in the cluster."""

from __future__ import annotations

import asyncio
import importlib
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.polling import eventually
from tests.under_test import NAME, OWN, init, ray, util

state: Any = importlib.import_module(f"{NAME}.util.state")
ROOT = str(pathlib.Path(__file__).parents[3])
pytestmark = pytest.mark.usefixtures("session")


@pytest.fixture(scope="module")
def session(no_leaks: None) -> Iterator[None]:
    """As that of the other tests, with the dashboard that Ray answers these questions with."""
    with pytest.MonkeyPatch.context() as patch:
        init(num_cpus=4, **({} if OWN else {"include_dashboard": True}))
        if not OWN:
            patch.setenv("RAY_ADDRESS", ray.get_runtime_context().gcs_address)
        yield
        ray.shutdown()


def has_ended(worker_id: str) -> bool:
    """Between the end of its connection and that of its process a worker is not listed."""
    row = state.get_worker(worker_id)
    return row is not None and row.is_alive is False


@ray.remote(num_cpus=0)
class Counter:
    def __init__(self) -> None:
        self.count = 0

    def add(self) -> int:
        self.count += 1
        return os.getpid()


def test_actors() -> None:
    actor = Counter.options(name="of the state").remote()
    pid = ray.get(actor.add.remote())
    (row,) = state.list_actors(filters=[("name", "=", "of the state")])
    assert row.state == row["state"] == row.get("state") == "ALIVE"
    assert row.class_name == "Counter"
    assert row.pid == pid
    assert row.actor_id == actor._actor_id.hex()
    assert row.node_id == ray.get_runtime_context().get_node_id()
    assert row.num_restarts is None
    assert row.asdict()["class_name"] == "Counter"
    detailed = state.get_actor(row.actor_id)
    assert detailed.num_restarts == 0
    assert detailed.is_detached is False
    assert state.get_actor("f" * 32) is None
    ray.kill(actor)
    assert eventually(lambda: state.get_actor(row.actor_id).state == "DEAD")
    assert row.actor_id not in [r.actor_id for r in state.list_actors(filters=[("state", "!=", "dead")])]
    assert row.actor_id in [r.actor_id for r in state.list_actors(filters=[("state", "=", "dead")])]
    summary = state.summarize_actors()["cluster"]
    assert summary["summary"]["Counter"]["state_counts"]["DEAD"] >= 1


def test_the_class_of_an_actor_has_its_qualified_name() -> None:
    class Local:
        def hello(self) -> None: ...

    actor = ray.remote(Local).options(name="of a local class").remote()
    ray.get(actor.hello.remote())
    (row,) = state.list_actors(filters=[("name", "=", "of a local class")])
    assert row.class_name == Local.__qualname__


def test_columns_of_filters_in_any_case() -> None:
    actor = Counter.options(name="of upper case").remote()
    ray.get(actor.__ray_ready__.remote())
    (row,) = state.list_actors(filters=[("NAME", "=", "of upper case"), ("Class_Name", "=", "Counter")])
    assert row.state == "ALIVE"
    ray.kill(actor)


def test_why_a_placement_group_waits() -> None:
    free = ray.available_resources()["CPU"]
    groups = [util.placement_group([{"CPU": size}], name=f"waits {size}") for size in (free, 4, 5000)]
    ray.get(groups[0].ready())

    def states() -> dict[str, str]:
        rows = state.list_placement_groups(detail=True)
        return {row.name: row.stats["scheduling_state"] for row in rows if row.name.startswith("waits")}

    assert eventually(
        lambda: (
            states() == {f"waits {free}": "FINISHED", "waits 4": "NO_RESOURCES", "waits 5000": "INFEASIBLE"}
        )
    )
    for group in groups:
        util.remove_placement_group(group)


def test_filters_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="predicate"):
        state.list_actors(filters=[("state", ">", "ALIVE")])
    with pytest.raises(ValueError):
        state.list_actors(filters=["state=ALIVE"])
    with pytest.raises(importlib.import_module(f"{NAME}.util.state.exception").RayStateApiException):
        state.list_actors(filters=[("no_such_column", "=", "ALIVE")])


def test_a_limit_that_is_too_high() -> None:
    error = importlib.import_module(f"{NAME}.util.state.exception").RayStateApiException
    with pytest.raises(error, match="exceeds the supported limit"):
        state.list_actors(limit=10**8)


def test_nodes_jobs_and_workers() -> None:
    (node,) = state.list_nodes()
    assert node.node_id == ray.get_runtime_context().get_node_id()
    assert node.state == "ALIVE"
    assert node.is_head_node is True
    assert node.resources_total["CPU"] == 4
    assert state.get_node(node.node_id).node_ip == node.node_ip
    job_id = ray.get_runtime_context().get_job_id()
    (job,) = [one for one in state.list_jobs() if one.job_id == job_id]
    assert job.status == "RUNNING"
    assert job.type == "DRIVER"
    workers = state.list_workers(filters=[("is_alive", "=", True)], limit=1000, raise_on_missing_output=False)
    assert os.getpid() in [row.pid for row in workers if row.worker_type == "DRIVER"]


def test_placement_groups() -> None:
    group = util.placement_group([{"CPU": 1}], name="of the state")
    ray.get(group.ready())
    (row,) = state.list_placement_groups(filters=[("name", "=", "of the state")], detail=True)
    assert row.state == "CREATED"
    assert row.placement_group_id == group.id.hex()
    assert row.is_detached is False
    assert len(row.bundles) == 1
    assert state.get_placement_group(group.id.hex()).name == "of the state"
    util.remove_placement_group(group)
    assert eventually(lambda: state.get_placement_group(group.id.hex()).state == "REMOVED")


def test_tasks(tmp_path: pathlib.Path) -> None:
    @ray.remote
    def state_runs(path: str) -> None:
        while not os.path.exists(path):
            time.sleep(0.01)

    @ray.remote(max_retries=1, retry_exceptions=True)
    def state_fails() -> None:
        raise ZeroDivisionError("bad luck")

    running = state_runs.remote(str(tmp_path / "go"))
    waiting = state_runs.options(num_cpus=4, name="waiting task").remote(str(tmp_path / "go"))
    failing = state_fails.remote()
    with pytest.raises(ZeroDivisionError):
        ray.get(failing)

    def states(name: str) -> list[str]:
        return sorted(row.state for row in state.list_tasks(filters=[("name", "=", name)]))

    assert eventually(lambda: states("state_runs") == ["RUNNING"])
    assert eventually(lambda: states("waiting task") == ["PENDING_NODE_ASSIGNMENT"])
    assert eventually(lambda: states("state_fails") == ["FAILED", "FAILED"])
    rows = state.list_tasks(filters=[("name", "=", "state_fails")], detail=True)
    assert {row.attempt_number for row in rows} == {0, 1}
    assert {row.type for row in rows} == {"NORMAL_TASK"}
    last = max(rows, key=lambda row: row.attempt_number)
    assert last.error_type == "TASK_EXECUTION_EXCEPTION"
    assert "bad luck" in last.error_message
    (row,) = state.list_tasks(filters=[("name", "=", "state_runs")])
    assert row.task_id == running.task_id().hex()
    assert row.worker_pid not in (None, os.getpid())
    (tmp_path / "go").touch()
    ray.get([running, waiting])
    assert eventually(lambda: states("state_runs") == ["FINISHED"])
    ended = state.get_task(row.task_id)
    assert ended.state == "FINISHED"
    assert ended.creation_time_ms <= ended.start_time_ms <= ended.end_time_ms


def test_tasks_whose_errors_leave_the_process_that_reads_them() -> None:
    def leave() -> None:
        raise SystemExit(3)

    class Leaves(Exception):
        def __reduce__(self) -> tuple[object, ...]:
            return leave, ()

    @ray.remote(max_retries=0)
    def state_leaves() -> None:
        raise Leaves

    ray.wait([state_leaves.remote()], timeout=60)

    def rows() -> list[Any]:
        found: list[Any] = state.list_tasks(filters=[("name", "=", "state_leaves")], detail=True)
        return [row for row in found if row.state == "FAILED"]

    assert eventually(rows)
    (row,) = rows()
    if OWN:
        assert "SystemExit: 3" in row.error_message


def test_calls_of_actors() -> None:
    actor = Counter.remote()
    ray.get([actor.add.remote() for _ in range(3)])

    def finished() -> int:
        filters = [("actor_id", "=", actor._actor_id.hex()), ("type", "=", "ACTOR_TASK")]
        return sum(
            row.state == "FINISHED" and row.name == "Counter.add" for row in state.list_tasks(filters=filters)
        )

    assert eventually(lambda: finished() == 3)
    (made,) = state.list_tasks(
        filters=[("actor_id", "=", actor._actor_id.hex()), ("type", "=", "ACTOR_CREATION_TASK")]
    )
    assert made.state == "FINISHED"
    assert made.name == "Counter.__init__"
    summary = state.summarize_tasks()["cluster"]
    assert summary["summary"]["Counter.add"]["state_counts"]["FINISHED"] >= 3


class Waits:
    def wait(self, path: str) -> None:
        while not os.path.exists(path):
            time.sleep(0.01)


class WaitsInCoroutines:
    async def wait(self, path: str) -> None:
        await asyncio.to_thread(Waits().wait, path)


@pytest.mark.parametrize("cls", [Waits, WaitsInCoroutines])
def test_calls_beyond_max_concurrency(cls: Any, tmp_path: pathlib.Path) -> None:
    actor = ray.remote(num_cpus=0, max_concurrency=2)(cls).remote()
    refs = [actor.wait.remote(str(tmp_path / "go")) for _ in range(4)]

    def states() -> list[str]:
        filters = [("actor_id", "=", actor._actor_id.hex()), ("type", "=", "ACTOR_TASK")]
        return sorted(row.state for row in state.list_tasks(filters=filters, detail=True))

    waiting = "PENDING_ACTOR_TASK_ORDERING_OR_CONCURRENCY"
    assert eventually(lambda: states() == [waiting, waiting, "RUNNING", "RUNNING"])
    (tmp_path / "go").touch()
    ray.get(refs)
    assert eventually(lambda: states() == ["FINISHED"] * 4)


def test_objects() -> None:
    ref = ray.put(b"x" * 10_000)
    rows = state.list_objects(filters=[("object_id", "=", ref.hex())], limit=1000)
    assert rows
    assert rows[0].pid == os.getpid()
    assert rows[0].type.lower() == "driver"
    assert state.summarize_objects()["cluster"]["total_objects"] >= 1


@ray.remote(num_cpus=0)
class Speaker:
    def say(self, *words: str) -> int:
        print("\n".join(words), flush=True)
        return os.getpid()


def written(**which: Any) -> str:
    return "".join(state.get_log(**which))


def test_logs() -> None:
    speaker = Speaker.remote()
    pid = ray.get(speaker.say.remote("one", "two", "three"))
    actor_id, node_id = speaker._actor_id.hex(), ray.get_runtime_context().get_node_id()
    if not OWN:  # until the node's agent can be asked
        exception = importlib.import_module(f"{NAME}.util.state.exception")

        def can_be_asked() -> bool:
            try:
                return bool(state.list_logs(node_id=node_id))
            except exception.RayStateApiException:
                return False

        assert eventually(can_be_asked)
    assert eventually(lambda: "three" in written(actor_id=actor_id))
    assert written(actor_id=actor_id).split()[-3:] == ["one", "two", "three"]
    assert written(actor_id=actor_id, tail=2).split() == ["two", "three"]
    assert "one" not in written(node_id=node_id, pid=pid, suffix="err").split()
    names = state.list_logs(node_id=node_id)
    (name,) = [name for name in names["worker_out"] if name.endswith(f"-{pid}.out")]
    assert b"two" in b"".join(state.get_log(node_id=node_id, filename=name, encoding=None))
    assert "worker_out" not in state.list_logs(node_id=node_id, glob_filter="*.err")
    follower = state.get_log(actor_id=actor_id, follow=True, tail=1, _interval=0.05)
    assert next(follower).split() == ["three"]
    ray.get(speaker.say.remote("four"))
    assert next(follower).split()[-1] == "four"


def test_logs_that_are_not_there() -> None:
    node_id = ray.get_runtime_context().get_node_id()
    with pytest.raises(ValueError if OWN else AssertionError):
        state.list_logs()
    unknown = [{"actor_id": "f" * 32}]
    if OWN:  # Ray gives nothing for an unknown file
        unknown.append({"node_id": node_id, "filename": "no such file"})
    for which in unknown:
        with pytest.raises(Exception, match=r"not find|not found|ould not|No such"):
            written(**which)


@pytest.mark.skipif(not OWN, reason="looks at the engine's own messages")
def test_filters_and_the_limit_travel_with_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    core = importlib.import_module(f"{NAME}._process.core_worker").current()
    ask, sent = core.ask, {}

    def remember(request: Any, timeout_s: float) -> Any:
        reply = ask(request, timeout_s)
        if hasattr(request, "kind"):
            sent[request.kind] = len(reply.rows)
        return reply

    monkeypatch.setattr(core, "ask", remember)
    refs = [ray.put(number) for number in range(20)]
    assert len(state.list_objects(limit=3)) == sent["objects"] == 3
    (row,) = state.list_objects(filters=[("object_id", "=", refs[7].hex())])
    assert row.object_id == refs[7].hex()
    assert sent["objects"] == 1
    assert len(state.list_objects(filters=[("pid", "=", os.getpid())], limit=2)) == 2
    assert sent["objects"] >= 20, "the agent adds the process id"


def pid() -> int:
    return os.getpid()


def test_runtime_environments() -> None:
    variables = {"env_vars": {"OF_THE_STATE": "1"}}
    ray.get(ray.remote(pid).options(runtime_env=variables).remote())
    missing = {"working_dir": "https://127.0.0.1:9/no_such.zip"}
    with pytest.raises(Exception, match=r"no_such\.zip"):
        ray.get(ray.remote(max_retries=0)(pid).options(runtime_env=missing).remote())

    def listed(env: dict[str, Any], **options: Any) -> list[Any]:
        return [row for row in state.list_runtime_envs(**options) if row.runtime_env == env]

    assert eventually(lambda: listed(variables) and listed(missing))
    (ready,), (failed,) = listed(variables, detail=True), listed(missing, detail=True)
    assert ready.success is True
    assert ready.error is None
    assert ready.creation_time_ms >= 0
    assert ready.node_id == ray.get_runtime_context().get_node_id()
    assert failed.success is False
    assert "no_such.zip" in failed.error
    assert listed(missing, filters=[("success", "=", "false")])
    assert not listed(variables, filters=[("success", "=", "false")])


LEAVES = """
import sys
import {name} as ray
ray.init({address!r}, log_to_driver=False)

@ray.remote(max_retries=0)
def of_the_driver(fails):
    if fails:
        raise ValueError("as asked")

ray.wait([of_the_driver.remote(False), of_the_driver.remote(True)], num_returns=2)
context = ray.get_runtime_context()
print(context.get_job_id(), context.get_worker_id())
"""


def test_tasks_and_workers_of_a_driver_that_has_left() -> None:
    address = ray.get_runtime_context().gcs_address
    left = subprocess.run(
        [sys.executable, "-c", LEAVES.format(name=NAME, address=address)],
        env={**os.environ, "PYTHONPATH": ROOT},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=120,
    )
    job_id, worker_id = left.stdout.split()[-2:]

    def of_the_job() -> list[Any]:
        rows = state.list_tasks(filters=[("job_id", "=", job_id)], detail=True)
        return sorted((row for row in rows if row.name == "of_the_driver"), key=lambda row: row.state)

    assert eventually(lambda: [row.state for row in of_the_job()] == ["FAILED", "FINISHED"])
    failed, finished = of_the_job()
    assert failed.error_type == "TASK_EXECUTION_EXCEPTION"
    assert "as asked" in failed.error_message
    assert state.get_task(finished.task_id).state == "FINISHED"
    assert eventually(lambda: has_ended(worker_id))
    row = state.get_worker(worker_id)
    assert row.worker_type == "DRIVER"
    living, dead = (
        [
            one.worker_id
            for one in state.list_workers(
                filters=[("is_alive", "=", alive)], limit=1000, raise_on_missing_output=False
            )
        ]
        for alive in (True, False)
    )
    assert worker_id in dead
    assert worker_id not in living


def test_tasks_of_an_actor_that_was_killed() -> None:
    @ray.remote(num_cpus=0, max_retries=0)
    def of_the_killed(fails: bool) -> None:
        if fails:
            raise ValueError("as asked")

    @ray.remote(num_cpus=0)
    def of_the_killed_too() -> None:
        time.sleep(600)

    @ray.remote(num_cpus=0)
    class Parent:
        def work(self) -> None:
            ray.wait([of_the_killed.remote(fails) for fails in (False, True)], num_returns=2)
            self.pending = of_the_killed_too.remote()

        def has_told(self) -> None:
            if not OWN:
                time.sleep(5)
                return
            history = importlib.import_module("runtime._process.core_worker").current().history
            assert eventually(lambda: not history.has_news)
            ray.nodes()  # comes after it

    parent = Parent.remote()
    ray.get(parent.work.remote())
    ray.get(parent.has_told.remote())
    ray.kill(parent)

    def states(name: str) -> list[str]:
        rows = state.list_tasks(filters=[("func_or_class_name", "=", name)], limit=1000, detail=True)
        return sorted(row.state for row in rows)

    assert eventually(lambda: states("of_the_killed") == ["FAILED", "FINISHED"])
    assert eventually(lambda: states("of_the_killed_too") == ["FAILED"])


def test_tasks_and_workers_of_an_actor_that_has_ended() -> None:
    @ray.remote(num_cpus=0)
    def of_the_actor() -> None: ...

    @ray.remote(num_cpus=0)
    class Parent:
        def work(self) -> str:
            ray.get(of_the_actor.remote())
            worker_id: str = ray.get_runtime_context().get_worker_id()
            return worker_id

        def crash(self) -> None:
            os._exit(3)

    parent, crashes = Parent.remote(), Parent.remote()
    ended, crashed = ray.get([parent.work.remote(), crashes.work.remote()])
    parent.__ray_terminate__.remote()
    crashes.crash.remote()
    assert eventually(lambda: has_ended(ended) and has_ended(crashed))
    assert state.get_worker(ended).exit_type.startswith("INTENDED")
    row = state.get_worker(crashed)
    assert row.exit_type == "SYSTEM_ERROR"
    assert row.worker_type == "WORKER"
    names = [row.name for row in state.list_tasks(filters=[("func_or_class_name", "=", "of_the_actor")])]
    assert "of_the_actor" in names


def test_a_worker_that_ends_after_max_calls() -> None:
    worker_id = ray.get(ray.remote(max_calls=1)(lambda: ray.get_runtime_context().get_worker_id()).remote())
    assert eventually(lambda: has_ended(worker_id))
    row = state.get_worker(worker_id)
    assert row.exit_type == "INTENDED_USER_EXIT"
    assert "Worker exits with an exit code 0" in row.exit_detail
    assert "reached max_calls=1" in row.exit_detail


STAYS = """
import sys, time
import {name} as ray
ray.init({address!r}, log_to_driver=False)
print(ray.get_runtime_context().get_job_id(), ray.get_runtime_context().get_worker_id(), flush=True)
time.sleep(600)
"""


def test_a_driver_that_was_killed_is_an_event() -> None:
    address = ray.get_runtime_context().gcs_address
    with subprocess.Popen(
        [sys.executable, "-c", STAYS.format(name=NAME, address=address)],
        env={**os.environ, "PYTHONPATH": ROOT},
        stdout=subprocess.PIPE,
        text=True,
    ) as driver:
        assert driver.stdout is not None
        job_id, worker_id = driver.stdout.readline().split()
        driver.kill()

    def events() -> list[Any]:
        rows = state.list_cluster_events(filters=[("severity", "=", "ERROR")], limit=1000, detail=True)
        return [row for row in rows if row["custom_fields"].get("job_id") == job_id]

    assert eventually(lambda: has_ended(worker_id))
    assert state.get_worker(worker_id).exit_type == "SYSTEM_ERROR"
    assert eventually(events)
    (event,) = events()
    assert event["source_type"] == "RAYLET"
    assert f"JobId: {job_id}" in event["message"]
    assert event["time"]
    assert event["event_id"]
